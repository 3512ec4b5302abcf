// From the rows of a GGUF file to the rows the engine wants.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <new>

#include "base/error.h"
#include "base/half.h"
#include "convert/gguf_model.h"

namespace doppler {
namespace {

// Types of one f16 scale and whole levels of at most 8 bits for 32 weights: as Q8_0 they are the same numbers.
bool is_scaled_levels(DType type) { return type == DType::kQ4_0 || type == DType::kQ5_0 || type == DType::kIQ4_NL; }

void levels_to_q8_0(DType type, const std::byte* row, const float* values, size_t cols, std::byte* out) {
  const auto block_bytes = static_cast<size_t>(info(type).block_bytes);
  for (size_t b = 0; b < cols / 32; ++b) {
    uint16_t half;
    std::memcpy(&half, row + b * block_bytes, sizeof half);
    const float scale = f16_to_f32(half);
    std::memcpy(out + b * 34, &half, sizeof half);
    for (size_t i = 0; i < 32; ++i) {
      const float level = scale != 0 ? std::clamp(std::nearbyint(values[32 * b + i] / scale), -128.f, 127.f) : 0;
      out[b * 34 + 2 + i] = static_cast<std::byte>(static_cast<int8_t>(level));
    }
  }
}

// The nearest of 255 levels, the largest magnitude at one end.
void round_to_q8_0(const float* values, size_t cols, std::byte* out) {
  for (size_t b = 0; b < cols / 32; ++b, values += 32, out += 34) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
    const uint16_t half = f32_to_f16(std::min(largest / 127, 65504.f));
    const float steps = f16_to_f32(half) > 0 ? 1 / f16_to_f32(half) : 0;
    std::memcpy(out, &half, sizeof half);
    int8_t levels[32];
    for (int i = 0; i < 32; ++i)
      levels[i] = static_cast<int8_t>(std::clamp(std::nearbyint(values[i] * steps), -127.f, 127.f));
    std::memcpy(out + 2, levels, sizeof levels);
  }
}

struct Place {
  const Tensor* tensor;
  int64_t row;
};

// Where our row lies in the file. Rows are single weights for rearranged vectors.
Place place_of(const GgufSlot& slot, int64_t row) {
  if (slot.parts.size() == 2) return {slot.parts[static_cast<size_t>(row % 2)], row / 2};
  if (slot.paired_head > 0) {
    const int64_t head = row / slot.paired_head, within = row % slot.paired_head, half = slot.paired_head / 2;
    return {slot.parts[0], head * slot.paired_head + within % half * 2 + within / half};
  }
  return {slot.parts[0], row};
}

// What the file's own bytes cannot serve as they are, and how many tensors and bytes that came to.
struct Copies {
  uint64_t tensors = 0, bytes = 0;
};

struct Owner {
  explicit Owner(GgufModel m) : model(std::move(m)) {}
  GgufModel model;
  std::vector<std::unique_ptr<std::byte[]>> copies;
};

Tensor copy_slot(const GgufSlot& slot, DType to, ThreadPool& pool, Owner& owner) {
  const GgufRows rows = rows_of(slot);
  const size_t size = static_cast<size_t>(rows.count) * row_bytes(to, static_cast<size_t>(rows.cols));
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (!bytes) {
    fail({ErrorCode::kMemory, "a tensor that must be rearranged does not fit in memory", slot.parts[0]->name, "",
          fmt::format("{} bytes", size), "Convert the file first: doppler convert MODEL.gguf DST"});
  }
  std::byte* end = bytes.get();
  ClassReport unused;
  RowStream stream;
  stream.name = owner.model.file.where() + ": " + slot.parts[0]->name;
  stream.rows = rows.count;
  stream.cols = rows.cols;
  stream.dtype = to;
  stream.make = [&](int64_t row, std::byte* out, float* scratch) {
    return fetch_row(slot, row, to, out, scratch, true);
  };
  stream.write = [&](std::span<const std::byte> piece) { end = std::copy(piece.begin(), piece.end(), end); };
  stream.on_weights = [](uint64_t) {};
  stream_rows(stream, pool, unused);
  for (const Tensor* part : slot.parts) owner.model.file.release(part->bytes);
  owner.copies.push_back(std::move(bytes));
  return {slot.parts[0]->name, to, slot.shape, {owner.copies.back().get(), size}};
}

}  // namespace

DType gguf_target_dtype(const GgufSlot& slot) {
  if (slot.rule.quant == QuantClass::kKeep) return DType::kF32;
  const DType own = slot.dtype();
  if (own == DType::kMXFP4) return slot.rule.quant == QuantClass::kExpert ? own : DType::kQ8_0;
  return computed_from(own) ? own : DType::kQ8_0;
}

GgufRows rows_of(const GgufSlot& slot) {
  const bool vector_turned = slot.rule.quant == QuantClass::kKeep && (slot.parts.size() > 1 || slot.paired_head > 0);
  int64_t count = 1;
  for (size_t i = 0; i + 1 < slot.shape.size(); ++i) count *= slot.shape[i];
  return vector_turned ? GgufRows{count * slot.shape.back(), 1} : GgufRows{count, slot.shape.back()};
}

RowOutcome fetch_row(const GgufSlot& slot, int64_t row, DType to, std::byte* out, float* scratch, bool quick) {
  const auto cols = static_cast<size_t>(rows_of(slot).cols);
  const Place place = place_of(slot, row);
  const DType from = slot.dtype();
  const std::byte* source = place.tensor->bytes.data() + static_cast<size_t>(place.row) * row_bytes(from, cols);
  if (from == to && slot.added == 0) {
    std::memcpy(out, source, row_bytes(from, cols));
    return {};
  }
  decode_row(from, source, scratch, cols);
  if (to == DType::kQ8_0 && is_scaled_levels(from)) {
    const bool fine = all_finite(scratch, cols);
    if (fine) levels_to_q8_0(from, source, scratch, cols, out);
    return {0, 0, fine};
  }
  if (to == DType::kQ8_0 && quick && slot.added == 0) {
    const bool fine = all_finite(scratch, cols);
    if (fine) round_to_q8_0(scratch, cols, out);
    return {0, 0, fine};
  }
  for (size_t i = 0; i < cols; ++i) scratch[i] -= slot.added;
  return store_values(scratch, cols, to, out, scratch + cols);
}

OpenedGguf open_gguf(const std::filesystem::path& path, int threads) {
  auto owner = std::make_shared<Owner>(read_gguf_model(path));
  const GgufModel& model = owner->model;
  OpenedGguf out;
  out.config = model.config;
  out.notes = model.notes;
  out.file_type = model.file_type;
  out.file_bytes = model.file.size();
  out.tokenizer = tokenizer_from_gguf(model.file, out.notes);
  ThreadPool pool(threads);
  std::map<DType, Copies> decoded;
  Copies turned;
  for (const GgufSlot& slot : model.slots) {
    const DType to = gguf_target_dtype(slot);
    if (to == slot.dtype() && !slot.rearranged()) {
      out.weights.add(slot.slot, {slot.parts[0]->name, to, slot.shape, slot.parts[0]->bytes});
      continue;
    }
    Tensor tensor = copy_slot(slot, to, pool, *owner);
    Copies& line = to == slot.dtype() ? turned : decoded[slot.dtype()];
    ++line.tensors;
    line.bytes += tensor.bytes.size();
    out.copied_bytes += tensor.bytes.size();
    out.weights.add(slot.slot, std::move(tensor));
  }
  constexpr double kMiB = 1 << 20;
  if (turned.bytes > kMiB) {
    out.notes.push_back(fmt::format("tensors held in another order of rows than the file has: {} ({:.0f} MiB)",
                                    turned.tensors, static_cast<double>(turned.bytes) / kMiB));
  }
  for (const auto& [dtype, copies] : decoded) {
    if (static_cast<double>(copies.bytes) <= kMiB) continue;
    out.notes.push_back(fmt::format("tensors of {}, which there are no kernels for, held as Q8_0: {} ({:.0f} MiB)",
                                    name_of(dtype), copies.tensors, static_cast<double>(copies.bytes) / kMiB));
  }
  out.owner = std::move(owner);
  return out;
}

}  // namespace doppler
