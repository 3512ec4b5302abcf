#include "gpu/webgpu/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace doppler::gpu {

Grid linear_grid(uint64_t workgroups, const Limits& limits) {
  const uint64_t side = limits.workgroups_per_dimension;
  if (workgroups <= side) return {static_cast<uint32_t>(std::max<uint64_t>(workgroups, 1)), 1, 1};
  const uint64_t rows = (workgroups + side - 1) / side;
  if (rows > side) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "a dispatch is too large for this device",
          .expected = fmt::format("up to {} workgroups", side * side),
          .got = fmt::format("{}", workgroups)});
  }
  // Near-equal rows leave fewer than `rows` workgroups with nothing to do.
  return {static_cast<uint32_t>((workgroups + rows - 1) / rows), static_cast<uint32_t>(rows), 1};
}

size_t Recording::add(std::string step, const KernelSource& source, const Variant& variant,
                      std::span<const std::byte> params, std::span<const BoundBuffer> buffers, Grid grid) {
  const uint32_t most = device_->capabilities().limits.workgroups_per_dimension;
  if (grid.x > most || grid.y > most || grid.z > most) {
    fail({.code = ErrorCode::kInternal,
          .what = "a dispatch is larger than the device allows",
          .where = step,
          .expected = fmt::format("up to {} a side", most),
          .got = fmt::format("{}x{}x{}", grid.x, grid.y, grid.z)});
  }
  Dispatch dispatch;
  dispatch.kernel = device_->kernel(source, variant);
  dispatch.grid = grid;
  std::vector<BoundBuffer> bound;
  if (source.params_bytes != 0) {
    const size_t alignment = device_->capabilities().limits.uniform_alignment;
    if (chunks_.empty() || chunks_.back().used + params.size() > chunk_bytes_) {
      ParamChunk chunk;
      chunk.buffer = device_->create_buffer(label_ + " parameters", chunk_bytes_, BufferUse::kUniform);
      chunk.bytes.resize(chunk_bytes_);
      chunks_.push_back(std::move(chunk));
    }
    ParamChunk& chunk = chunks_.back();
    dispatch.chunk = chunks_.size() - 1;
    dispatch.offset = chunk.used;
    chunk.used = (chunk.used + params.size() + alignment - 1) / alignment * alignment;
    bound.push_back({chunk.buffer, dispatch.offset, params.size()});
  }
  bound.insert(bound.end(), buffers.begin(), buffers.end());
  dispatch.bind_group = device_->create_bind_group(step, dispatch.kernel, bound);
  dispatch.step = std::move(step);
  dispatch_commands_.push_back(commands_.size());
  commands_.push_back(std::move(dispatch));
  const size_t number = dispatch_count_++;
  set(number, source, params);
  return number;
}

Recording::Dispatch& Recording::dispatch_at(size_t dispatch) {
  if (dispatch >= dispatch_count_) {
    fail(
        {.code = ErrorCode::kInternal, .what = fmt::format("recording has no dispatch {}", dispatch), .where = label_});
  }
  return std::get<Dispatch>(commands_[dispatch_commands_[dispatch]]);
}

void Recording::set(size_t dispatch, const KernelSource& source, std::span<const std::byte> params) {
  const Dispatch& d = dispatch_at(dispatch);
  if (&d.kernel.source() != &source) {
    fail({.code = ErrorCode::kInternal,
          .what = "parameters of another kernel",
          .where = d.step,
          .expected = d.kernel.source().name,
          .got = source.name});
  }
  if (source.params_bytes == 0) return;
  ParamChunk& chunk = chunks_[d.chunk];
  std::memcpy(chunk.bytes.data() + d.offset, params.data(), params.size());
  if (chunk.dirty_begin == chunk.dirty_end) {
    chunk.dirty_begin = d.offset;
    chunk.dirty_end = d.offset + params.size();
  } else {
    chunk.dirty_begin = std::min(chunk.dirty_begin, d.offset);
    chunk.dirty_end = std::max(chunk.dirty_end, d.offset + params.size());
  }
}

void Recording::set_grid(size_t dispatch, Grid grid) { dispatch_at(dispatch).grid = grid; }

void Recording::copy(std::string step, const Buffer& from, uint64_t from_offset, const Buffer& to, uint64_t to_offset,
                     uint64_t bytes) {
  commands_.push_back(Copy{std::move(step), from, from_offset, to, to_offset, bytes});
}

void Recording::clear(std::string step, const Buffer& buffer, uint64_t offset, uint64_t bytes) {
  commands_.push_back(Copy{std::move(step), Buffer(), 0, buffer, offset, bytes});
}

void Recording::flush_params() {
  for (ParamChunk& chunk : chunks_) {
    if (chunk.dirty_begin == chunk.dirty_end) continue;
    device_->write(chunk.buffer, chunk.dirty_begin,
                   std::span(chunk.bytes).subspan(chunk.dirty_begin, chunk.dirty_end - chunk.dirty_begin));
    chunk.dirty_begin = chunk.dirty_end = 0;
  }
}

}  // namespace doppler::gpu
