#include "convert/gguf_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "convert/tensor_map.h"

namespace doppler {
namespace {

constexpr size_t kMostNamed = 12;

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// What each of `parts` tensors must look like so that together they make `shape`: rows alternate, so they share them.
std::vector<int64_t> part_shape(std::vector<int64_t> shape, size_t parts) {
  if (parts > 1) shape[1] /= static_cast<int64_t>(parts);
  return shape;
}

GgufSlot map_slot(const WeightUse& use, const Family& family, const ModelConfig& config, const GgufFile& file,
                  std::vector<std::string>& faults) {
  GgufSlot out{use.slot, rule_for(family, use.slot, layouts_of(family).front()), use.shape, {}, 0, 0};
  const std::vector<std::string> names = gguf_names(family, use.slot);
  if (names.empty()) faults.push_back(fmt::format("GGUF has no name for {}", use.slot));
  if (names.size() > 2 || (names.size() == 2 && use.shape.size() < 2)) {
    fail({ErrorCode::kFormat, "a slot cannot be put together from so many tensors", family.file, "", use.slot, ""});
  }
  for (const std::string& name : names) {
    const Tensor* tensor = file.tensor(name);
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

}  // namespace

GgufModel read_gguf_model(const std::filesystem::path& path, const Family* family,
                          const std::set<std::string>& harmless) {
  GgufFile file(path);
  const Family& served = family ? *family : family_for_gguf(file);
  GgufModel model{std::move(file), &served, {}, {}, {}, ""};
  const GgufFile& in = model.file;
  model.file_type = main_type(in);
  model.config = config_from_gguf(in, served, harmless);
  const Tensor* embed = in.tensor(gguf_names(served, "embed").at(0));
  if (!embed || embed->shape.size() != 2 || embed->shape[0] > (1 << 24)) {
    fail({ErrorCode::kFormat, "the file has no embedding", in.where(),
          gguf_names(served, "embed").at(0) + " [vocabulary, hidden]", embed ? shape_text(embed->shape) : "",
          "A part of a split model? Join the parts first (llama-gguf-split --merge)"});
  }
  model.config.vocab = static_cast<int>(embed->shape[0]);
  check(model.config, in.where());

  std::vector<std::string> faults;
  std::set<std::string> used = {"rope_freqs.weight"};
  for (const WeightUse& use : weights_of(build_plan(model.config))) {
    model.slots.push_back(map_slot(use, served, model.config, in, faults));
    for (const Tensor* part : model.slots.back().parts) used.insert(part->name);
  }
  for (const Tensor& tensor : in.tensors()) {
    if (!used.contains(tensor.name))
      faults.push_back(fmt::format("{} {} is there, but nothing uses it", tensor.name, shape_text(tensor.shape)));
  }
  if (!faults.empty()) {
    const size_t more = faults.size() > kMostNamed ? faults.size() - kMostNamed : 0;
    if (more) faults.resize(kMostNamed);
    fail({ErrorCode::kFormat, "the metadata and the tensors disagree", in.where(), "",
          fmt::format("{}{}", fmt::join(faults, "; "), more ? fmt::format("; and {} more", more) : ""),
          "The file is incomplete, or its family's file does not describe it"});
  }
  return model;
}

}  // namespace doppler
