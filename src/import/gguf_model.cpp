#include "import/gguf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <new>

#include "base/error.h"
#include "base/half.h"
#include "base/threads.h"
#include "format/decode.h"
#include "import/as_q8_0.h"
#include "import/tensor_map.h"

namespace doppler {
namespace {

// What each of `parts` tensors must look like so that together they make `shape`: rows alternate, so they share them.
std::vector<int64_t> part_shape(std::vector<int64_t> shape, size_t parts) {
  if (parts > 1) shape[1] /= static_cast<int64_t>(parts);
  return shape;
}

// The rows of a tensor that holds the slots of rule.stacked behind each other; null where it does not.
const Tensor* part_of_stack(const Tensor& tensor, const WeightUse& use, const TensorRule& rule, const Family& family,
                            const std::vector<WeightUse>& uses, std::deque<Tensor>& views) {
  int64_t first = 0, all = 0;
  for (const std::string& slot : rule.stacked) {
    if (gguf_names(family, slot) != std::vector<std::string>{tensor.name}) return nullptr;
    if (slot == use.slot) first = all;
    const auto other = std::find_if(uses.begin(), uses.end(), [&](const WeightUse& u) { return u.slot == slot; });
    if (other != uses.end()) all += other->shape[0];
  }
  if (all == 0 || tensor.shape.size() != 2 || tensor.shape[0] != all || tensor.cols() != use.shape[1]) return nullptr;
  Tensor& view = views.emplace_back(tensor);
  view.shape[0] = use.shape[0];
  view.bytes = tensor.bytes.subspan(static_cast<size_t>(first) * tensor.stride(),
                                    static_cast<size_t>(use.shape[0]) * tensor.stride());
  return &view;
}

GgufSlot map_slot(const WeightUse& use, const Family& family, const ModelConfig& config, const GgufFile& file,
                  const std::vector<WeightUse>& uses, std::deque<Tensor>& views, std::vector<std::string>& faults) {
  GgufSlot out{use.slot, rule_for(family, use.slot, layouts_of(family).front()), use.shape, {}, 0, 0};
  const std::vector<std::string> names = gguf_names(family, use.slot);
  if (names.empty()) faults.push_back(fmt::format("GGUF has no name for {}", use.slot));
  if (names.size() > 2 || (names.size() == 2 && use.shape.size() < 2)) {
    fail({.code = ErrorCode::kFormat,
          .what = "a slot cannot be put together from so many tensors",
          .where = family.file,
          .got = use.slot});
  }
  for (const std::string& name : names) {
    const Tensor* tensor = file.tensor(name);
    if (tensor && !out.rule.stacked.empty()) {
      const Tensor* part = part_of_stack(*tensor, use, out.rule, family, uses, views);
      if (part) tensor = part;
    }
    const std::vector<int64_t> expected = part_shape(use.shape, names.size());
    if (!tensor) {
      faults.push_back(
          fmt::format("{} is missing, but the metadata calls for it with shape {}", name, shape_text(expected)));
    } else if (tensor->shape != expected) {
      faults.push_back(fmt::format("{} has shape {}, but the metadata calls for {}", name, shape_text(tensor->shape),
                                   shape_text(expected)));
    } else if (!out.parts.empty() && tensor->dtype != out.dtype()) {
      faults.push_back(fmt::format("{} is {}, but {} is {}: their rows cannot be joined", name, name_of(tensor->dtype),
                                   out.parts.front()->name, name_of(out.dtype())));
    } else {
      out.parts.push_back(tensor);
    }
  }
  if (gguf_pair_rotated(family, use.slot)) out.paired_head = config.head_dim;
  if (out.rule.quant == QuantClass::kKeep && !out.parts.empty() && info(out.dtype()).block_weights > 1) {
    faults.push_back(fmt::format("{} is {}, but it must not be quantised", names[0], name_of(out.dtype())));
  }
  if (out.rule.role == "norm" && gguf_norms_hold_offset(family)) out.added = config.norm_offset;
  return out;
}

// The type that takes the most bytes.
std::string main_type(const GgufFile& file) {
  std::map<DType, uint64_t> bytes;
  for (const Tensor& tensor : file.tensors()) bytes[tensor.dtype] += tensor.bytes.size();
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(name_of(most->first));
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

struct GgufOwner {
  explicit GgufOwner(GgufModel m) : model(std::move(m)) {}
  GgufModel model;
  std::vector<std::unique_ptr<std::byte[]>> copies;
};

// What a type with kernels needs of a row that read_row() only decoded.
void round_row(const float* values, size_t cols, DType to, std::byte* out) {
  if (to == DType::kQ8_0) return round_to_q8_0(values, cols, out);
  if (to != DType::kF32) {
    fail({.code = ErrorCode::kInternal, .what = "no rounding to this type here", .got = std::string(name_of(to))});
  }
  std::memcpy(out, values, cols * sizeof(float));
}

Tensor copy_slot(const GgufSlot& slot, DType to, ThreadPool& pool, GgufOwner& owner) {
  const GgufRows rows = rows_of(slot);
  const auto cols = static_cast<size_t>(rows.cols);
  const size_t stride = row_bytes(to, cols), size = static_cast<size_t>(rows.count) * stride;
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (!bytes) {
    fail({.code = ErrorCode::kMemory,
          .what = "a tensor that must be rearranged does not fit in memory",
          .where = slot.parts[0]->name,
          .got = fmt::format("{} bytes", size),
          .todo = "Convert the file first: doppler convert MODEL.gguf DST"});
  }
  std::vector<int64_t> faulty(static_cast<size_t>(pool.size()), rows.count);  // the first row of each thread's
  pool.run([&](int index, int threads) {
    const Range range = split_range(rows.count, index, threads);
    std::vector<float> values(cols);
    for (long row = range.begin; row < range.end; ++row) {
      std::byte* out = bytes.get() + static_cast<size_t>(row) * stride;
      const RowState state = read_row(slot, row, to, out, values.data());
      if (state == RowState::kDecoded) round_row(values.data(), cols, to, out);
      if (state != RowState::kNotFinite) continue;
      faulty[static_cast<size_t>(index)] = row;
      return;
    }
  });
  const int64_t first = *std::min_element(faulty.begin(), faulty.end());
  if (first < rows.count) {
    fail({.code = ErrorCode::kFormat,
          .what = "a weight is not a finite number",
          .where = fmt::format("{}: {}, row {}", owner.model.file.where(), slot.parts[0]->name, first),
          .todo = "The file is damaged; fetch it again"});
  }
  for (const Tensor* part : slot.parts) owner.model.file.release(part->bytes);
  owner.copies.push_back(std::move(bytes));
  return {slot.parts[0]->name, to, slot.shape, {owner.copies.back().get(), size}};
}

}  // namespace

GgufModel read_gguf_model(const std::filesystem::path& path, const Family* family,
                          const std::set<std::string>& harmless) {
  GgufFile file(path);
  const Family& served = family ? *family : family_for_gguf(file);
  GgufModel model{std::move(file), &served, {}, {}, {}, {}, ""};
  const GgufFile& in = model.file;
  model.file_type = main_type(in);
  model.config = config_from_gguf(in, served, harmless);
  const Tensor* embed = in.tensor(gguf_names(served, "embed").at(0));
  if (!embed || embed->shape.size() != 2 || embed->shape[0] > (1 << 24)) {
    fail({.code = ErrorCode::kFormat,
          .what = "the file has no embedding",
          .where = in.where(),
          .expected = gguf_names(served, "embed").at(0) + " [vocabulary, hidden]",
          .got = embed ? shape_text(embed->shape) : "",
          .todo = "The file is incomplete; fetch it again"});
  }
  model.config.vocab = static_cast<int>(embed->shape[0]);
  check(model.config, in.where());

  std::vector<std::string> faults;
  std::set<std::string> used = {"rope_freqs.weight", kShortFactors, kLongFactors};
  const std::vector<WeightUse> uses = weights_of(build_plan(model.config));
  for (const WeightUse& use : uses) {
    model.slots.push_back(map_slot(use, served, model.config, in, uses, model.views, faults));
    for (const Tensor* part : model.slots.back().parts) used.insert(part->name);
  }
  if (!model.config.makes_text()) used.insert(gguf_names(served, "lm_head").at(0));
  for (const Tensor& tensor : in.tensors()) {
    if (!used.contains(tensor.name))
      faults.push_back(fmt::format("{} {} is there, but nothing uses it", tensor.name, shape_text(tensor.shape)));
  }
  check_faults(std::move(faults), "the metadata and the tensors disagree", in.where(),
               "The file is incomplete, or its family's file does not describe it");
  return model;
}

DType gguf_target_dtype(const GgufSlot& slot, bool cpu_only) {
  if (slot.rule.quant == QuantClass::kKeep) return DType::kF32;
  const DType own = slot.dtype();
  if (own == DType::kMXFP4) return slot.rule.quant == QuantClass::kExpert ? own : DType::kQ8_0;
  return has_kernels(own) || (cpu_only && has_cpu_kernels(own)) ? own : DType::kQ8_0;
}

GgufRows rows_of(const GgufSlot& slot) {
  const bool vector_turned = slot.rule.quant == QuantClass::kKeep && (slot.parts.size() > 1 || slot.paired_head > 0);
  int64_t count = 1;
  for (size_t i = 0; i + 1 < slot.shape.size(); ++i) count *= slot.shape[i];
  return vector_turned ? GgufRows{count * slot.shape.back(), 1} : GgufRows{count, slot.shape.back()};
}

RowState read_row(const GgufSlot& slot, int64_t row, DType to, std::byte* out, float* values) {
  const auto cols = static_cast<size_t>(rows_of(slot).cols);
  const Place place = place_of(slot, row);
  const DType from = slot.dtype();
  const std::byte* source = place.tensor->bytes.data() + static_cast<size_t>(place.row) * row_bytes(from, cols);
  if (from == to && slot.added == 0) {
    std::memcpy(out, source, row_bytes(from, cols));
    return RowState::kStored;
  }
  if (to == DType::kQ8_0 && is_scaled_levels(from) && slot.added == 0) {
    return row_as_q8_0(from, source, cols, values, out) ? RowState::kStored : RowState::kNotFinite;
  }
  decode_row(from, source, values, cols);
  if (!all_finite(values, cols)) return RowState::kNotFinite;
  for (size_t i = 0; i < cols; ++i) values[i] -= slot.added;
  return RowState::kDecoded;
}

OpenedGguf open_gguf(const std::filesystem::path& path, int threads) {
  auto owner = std::make_shared<GgufOwner>(read_gguf_model(path));
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
    const DType to = gguf_target_dtype(slot, true);
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
  for (const auto& [slot, tensor] : out.weights.all()) {
    const bool matrix = tensor.shape.size() > 1 && !has_kernels(tensor.dtype) && has_cpu_kernels(tensor.dtype);
    out.gpu_weights.add(slot, matrix ? read_as_q8_0(tensor) : tensor);
  }
  out.owner = std::move(owner);
  return out;
}

}  // namespace doppler
