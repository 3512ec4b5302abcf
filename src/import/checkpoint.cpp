#include "import/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "base/error.h"
#include "base/files.h"
#include "base/half.h"
#include "base/threads.h"
#include "format/decode.h"
#include "import/checkpoint_tensors.h"
#include "import/family.h"
#include "import/tensor_map.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr uintptr_t kReadAlignment = 4;  // kernels read plain floats through typed pointers

struct CheckpointOwner {
  CheckpointOwner(const fs::path& folder, const Json& hf_config) : files(folder, hf_config) {}
  CheckpointTensors files;
  std::vector<std::unique_ptr<std::byte[]>> copies;

  std::byte* room(size_t size, const std::string& name) {
    std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
    if (!bytes) {
      fail({.code = ErrorCode::kMemory,
            .what = "a tensor that must be held in another form does not fit in memory",
            .where = name,
            .got = fmt::format("{} bytes", size),
            .todo = "Convert the checkpoint first: doppler convert FOLDER DST"});
    }
    copies.push_back(std::move(bytes));
    return copies.back().get();
  }
};

[[noreturn]] void refuse_weight(const std::string& where) {
  fail({.code = ErrorCode::kFormat,
        .what = "a weight is not a finite number",
        .where = where,
        .todo = "The checkpoint is damaged; fetch it again"});
}

Tensor held_as_f32(const Tensor& tensor, CheckpointOwner& owner) {
  const auto cols = static_cast<size_t>(tensor.cols());
  const size_t size = static_cast<size_t>(tensor.rows()) * cols * sizeof(float);
  std::byte* bytes = owner.room(size, tensor.name);
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    float* out = reinterpret_cast<float*>(bytes) + static_cast<size_t>(row) * cols;
    decode_row(tensor.dtype, tensor.row(row), out, cols);
    if (!all_finite(out, cols)) refuse_weight(fmt::format("{}, row {}", tensor.name, row));
  }
  return {tensor.name, DType::kF32, tensor.shape, {bytes, size}};
}

DType decoded_dtype(const MappedTensor& mapped) {
  return mapped.rule.quant == QuantClass::kKeep ? DType::kF32 : DType::kBF16;
}

// Rows that must be computed, as F32 or rounded to BF16.
Tensor held_decoded(const MappedTensor& mapped, CheckpointOwner& owner, ThreadPool& pool) {
  const SlotRows rows(mapped);
  const DType dtype = decoded_dtype(mapped);
  const auto cols = static_cast<size_t>(rows.cols()), stride = row_bytes(dtype, cols);
  const size_t size = static_cast<size_t>(rows.count()) * stride;
  std::byte* bytes = owner.room(size, mapped.rule.name);
  std::vector<int64_t> faulty(static_cast<size_t>(pool.size()), -1);
  pool.run([&](int index, int threads) {
    const Range range = split_range(static_cast<long>(rows.count()), index, threads);
    std::vector<float> values(cols);
    for (long row = range.begin; row < range.end; ++row) {
      rows.decode(row, values.data());
      if (!all_finite(values.data(), cols)) {
        faulty[static_cast<size_t>(index)] = row;
        return;
      }
      std::byte* out = bytes + static_cast<size_t>(row) * stride;
      for (size_t i = 0; i < cols; ++i) {
        const uint16_t rounded = f32_to_bf16(values[i]);
        if (dtype == DType::kF32)
          std::memcpy(out + 4 * i, &values[i], 4);
        else
          std::memcpy(out + 2 * i, &rounded, 2);
      }
    }
  });
  for (const int64_t row : faulty) {
    if (row >= 0) refuse_weight(fmt::format("{}, row {}", mapped.rule.name, row));
  }
  for (const RawTensor& raw : mapped.plain) owner.files.release(raw, raw.bytes);
  return {mapped.rule.name, dtype, mapped.shape, {bytes, size}};
}

// What decoding will take is known before it begins: a system that runs out of memory ends us without a sentence.
void check_memory(const TensorMap& map, uint64_t memory, const std::string& where) {
  uint64_t bytes = 0;
  for (const MappedTensor& mapped : map.tensors) {
    if (!mapped.is_decoded()) continue;
    const SlotRows rows(mapped);
    bytes += static_cast<uint64_t>(rows.count()) * row_bytes(decoded_dtype(mapped), static_cast<size_t>(rows.cols()));
  }
  if (bytes <= memory) return;
  constexpr double kMiB = 1 << 20;
  fail({.code = ErrorCode::kMemory,
        .what = "what the checkpoint stores quantised must be decoded to run, and does not fit in memory then",
        .where = where,
        .expected = fmt::format("at most {:.1f} MiB", static_cast<double>(memory) / kMiB),
        .got = fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB),
        .todo = "Convert it first, which takes a few rows at a time: doppler convert FOLDER DST"});
}

Tensor joined_mxfp4(const MappedTensor& mapped, CheckpointOwner& owner) {
  const size_t blocks = mapped.scales->bytes.size(), size = blocks * 17;
  std::byte* bytes = owner.room(size, mapped.rule.blocks);
  if (!repack_mxfp4_hf(mapped.blocks->bytes.data(), mapped.scales->bytes.data(), bytes, blocks))
    refuse_weight(mapped.rule.scales);
  owner.files.release(*mapped.blocks, mapped.blocks->bytes);
  return {mapped.rule.blocks, DType::kMXFP4, mapped.shape, {bytes, size}};
}

Tensor plain_part(const MappedTensor& mapped, size_t part) {
  Tensor tensor;
  if (!to_tensor(mapped.plain[part], tensor))
    fail({.code = ErrorCode::kInternal, .what = "not a weight", .where = mapped.plain[part].name});
  return tensor;
}

// Experts that have tensors of their own, row by row in the order of the slot.
Tensor joined_experts(const MappedTensor& mapped, CheckpointOwner& owner) {
  std::vector<Tensor> parts;
  size_t size = 0;
  for (size_t i = 0; i < mapped.plain.size(); ++i) {
    parts.push_back(plain_part(mapped, i));
    size += parts[i].bytes.size();
    if (parts[i].dtype == parts[0].dtype) continue;
    fail({.code = ErrorCode::kUnsupported,
          .what = "experts of one layer are stored as different types",
          .where = parts[i].name,
          .expected = std::string(name_of(parts[0].dtype)),
          .got = std::string(name_of(parts[i].dtype)),
          .todo = "Convert the checkpoint first: doppler convert FOLDER DST"});
  }
  const size_t row_bytes = parts[0].bytes.size() / static_cast<size_t>(parts[0].rows());
  std::byte* bytes = owner.room(size, mapped.rule.name);
  for (size_t row = 0; row < size / row_bytes; ++row) {
    const MappedTensor::Place place = mapped.place_of(static_cast<int64_t>(row));
    std::copy_n(parts[place.tensor].row(place.row), row_bytes, bytes + row * row_bytes);
  }
  for (const RawTensor& raw : mapped.plain) owner.files.release(raw, raw.bytes);
  return {mapped.rule.name, parts[0].dtype, mapped.shape, {bytes, size}};
}

// As a slot's weights are given to the engine: where they lie, or in a form of their own.
Tensor take(const MappedTensor& mapped, CheckpointOwner& owner, ThreadPool& pool) {
  if (mapped.plain.empty()) return joined_mxfp4(mapped, owner);
  if (mapped.is_decoded()) return held_decoded(mapped, owner, pool);
  if (mapped.plain.size() > 1 || mapped.rule.halves) return joined_experts(mapped, owner);
  Tensor tensor = plain_part(mapped, 0);
  const bool aligned = reinterpret_cast<uintptr_t>(tensor.bytes.data()) % kReadAlignment == 0;
  if (mapped.rule.quant == QuantClass::kKeep && (tensor.dtype != DType::kF32 || !aligned))
    return held_as_f32(tensor, owner);
  if (aligned) return tensor;
  std::byte* bytes = owner.room(tensor.bytes.size(), tensor.name);
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), bytes);
  tensor.bytes = {bytes, tensor.bytes.size()};
  return tensor;
}

}  // namespace

bool is_checkpoint(const fs::path& folder) {
  return is_file(folder / "config.json") && !file_exists(folder / "manifest.json");
}

OpenedCheckpoint open_checkpoint(const fs::path& folder, uint64_t memory) {
  const fs::path config_path = folder / "config.json";
  const Json hf_config = parse_json(read_text_file(config_path), config_path.string());
  const Family& family = family_for(hf_config, config_path.string());
  OpenedCheckpoint out;
  out.config = config_from_hf(family, hf_config, config_path.string());
  const fs::path name = fs::absolute(folder).lexically_normal();
  out.config.id = (name.filename().empty() ? name.parent_path() : name).filename().string();
  add_generation_ids(folder, out.config);
  add_embedding(folder, out.config);
  auto owner = std::make_shared<CheckpointOwner>(folder, hf_config);
  const TensorMap map = map_tensors(family, out.config, owner->files, folder.string());
  out.notes = map.notes;
  check_memory(map, memory, folder.string());
  ThreadPool pool(0);
  std::map<DType, uint64_t> bytes;
  uint64_t mapped_bytes = 0;
  for (const MappedTensor& mapped : map.tensors) {
    const size_t copies = owner->copies.size();
    Tensor tensor = take(mapped, *owner, pool);
    bytes[tensor.dtype] += tensor.bytes.size();
    (owner->copies.size() > copies ? out.copied_bytes : mapped_bytes) += tensor.bytes.size();
    for (const RawTensor& raw : mapped.plain) {
      const bool counted = raw.rows && mapped.first_row > 0;  // with the first slot of the stack
      if (!counted) out.file_bytes += owner->files.stored_bytes(raw);
    }
    for (const RawTensor* raw : {mapped.blocks, mapped.scales}) {
      if (raw) out.file_bytes += raw->bytes.size();
    }
    out.weights.add(mapped.slot, std::move(tensor));
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  out.main_type = most == bytes.end() ? "" : std::string(name_of(most->first));
  constexpr double kMiB = 1 << 20;
  out.notes.push_back(fmt::format(
      "a Hugging Face checkpoint, run as it is: {:.1f} MiB of weights stay in its files, {:.1f} MiB are held in memory "
      "as F32, BF16 or MXFP4; doppler convert makes a smaller and faster model of it",
      static_cast<double>(mapped_bytes) / kMiB, static_cast<double>(out.copied_bytes) / kMiB));
  out.owner = std::move(owner);
  return out;
}

}  // namespace doppler
