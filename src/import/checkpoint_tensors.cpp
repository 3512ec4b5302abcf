#include "import/checkpoint_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "import/quantisation_config.h"
#include "import/sentence_modules.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

// Of activations, and of keys and values in an 8-bit cache: Doppler quantises neither.
constexpr std::string_view kOfActivations[] = {
    ".input_scale",  ".input_global_scale", ".input_zero_point", ".activation_scale", "_activation_scale",
    ".output_scale", ".output_zero_point",  ".k_scale",          ".v_scale",          ".q_scale",
    ".kv_scale",     ".prob_output_scale"};

bool is_fp8(const RawTensor& raw) { return raw.dtype == "F8_E4M3" || raw.dtype == "F8_E5M2"; }

// What a config.json without quantization_config may hide, by the names of tensors that no plain model has.
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{".q_invperm", "EXL2"},
                                                                     {".trellis", "EXL3"},
                                                                     {".Qidxs", "QuIP#"},
                                                                     {".codebooks", "AQLM"},
                                                                     {".W_q", "HQQ"},
                                                                     {"._data", "Quanto"},
                                                                     {".pre_quant_scale", "AWQ of ModelOpt"}};

void refuse_others(const SafetensorsFolder& files) {
  const auto refuse = [](const RawTensor& raw, std::string_view found) {
    fail({.code = ErrorCode::kUnsupported,
          .what = fmt::format("this checkpoint is quantised by {}, which cannot be read", found),
          .where = raw.file.string(),
          .got = raw.name,
          .todo = "Take the model it was made from, in safetensors, or a GGUF of it"});
  };
  for (const auto& [name, raw] : files.tensors()) {
    for (const auto& [ending, found] : kOthers) {
      if (name.ends_with(ending)) refuse(raw, found);
    }
    if (raw.dtype == "U32" && name.ends_with(".weight") && files.find(name.substr(0, name.size() - 6) + "scales"))
      refuse(raw, "MLX");
  }
}

// `name` without `ending`, if it ends so.
bool stem_of(const std::string& name, std::string_view ending, std::string& stem) {
  if (!name.ends_with(ending)) return false;
  stem = name.substr(0, name.size() - ending.size());
  return true;
}

}  // namespace

CheckpointTensors::CheckpointTensors(const fs::path& folder, const Json& hf_config) : files_(folder) {
  refuse_others(files_);
  const Json* quantisation = quantisation_of(hf_config);
  add_groups(layout_of(quantisation), quantisation);
  std::set<const RawTensor*> used;
  for (const auto& [name, list] : parts_) used.insert(list.begin(), list.end());
  int activations = 0;
  for (const auto& [name, raw] : files_.tensors()) {
    if (used.contains(&raw)) continue;
    const bool of_activations = std::any_of(std::begin(kOfActivations), std::end(kOfActivations),
                                            [&](std::string_view ending) { return name.ends_with(ending); });
    if (of_activations && (quantisation || !parts_.empty())) {
      ++activations;
      continue;
    }
    if (!tensors_.emplace(name, raw).second)
      add(name, {.fault = "it is there quantised and plainly"}, {});
    else if (is_fp8(raw))
      add(name, {.fault = raw.name + " is " + raw.dtype + ", but its scales are missing"}, {});
  }
  add_dense(folder);
  if (!kinds_.empty()) {
    std::vector<std::string> kinds;
    for (const auto& [kind, count] : kinds_) kinds.push_back(fmt::format("{} as {}", count, kind));
    notes_.push_back(fmt::format("matrices that are stored quantised: {}", fmt::join(kinds, ", ")));
  }
  if (activations > 0) {
    notes_.push_back(
        fmt::format("{} scales of activations are left out: activations are not quantised here", activations));
  }
}

void CheckpointTensors::add_dense(const fs::path& folder) {
  for (const fs::path& module : read_sentence_modules(folder).dense) {
    const std::string slot = fmt::format("dense{}.", dense_.size());
    for (const auto& [name, raw] : dense_.emplace_back(module).tensors()) {
      RawTensor& tensor = tensors_[slot + name] = raw;
      tensor.name = slot + name;
      of_dense_[tensor.name] = {&dense_.back(), name};
    }
  }
}

void CheckpointTensors::add(const std::string& name, QuantisedMatrix matrix, std::vector<const RawTensor*> parts) {
  std::erase(parts, nullptr);
  const fs::path file = parts.empty() ? fs::path() : parts.front()->file;
  if (!matrix.fault.empty()) {
    faults_[name] = {.code = ErrorCode::kFormat,
                     .what = "a quantised matrix cannot be decoded",
                     .where = name,
                     .got = std::move(matrix.fault),
                     .todo =
                         "The checkpoint is incomplete, or quantised in a way that Doppler does not know: take the "
                         "model it was made from, in safetensors, or a GGUF of it"};
  } else {
    ++kinds_[matrix.kind];
  }
  tensors_[name] = {name, matrix.kind, std::move(matrix.shape), {}, file, std::move(matrix.rows)};
  parts_[name] = std::move(parts);
}

// Each way of storing a matrix is known by the names and types of its tensors; config.json only says what those do not.
void CheckpointTensors::add_groups(const QuantisedLayout& layout, const Json* quantisation) {
  const auto missing = [](const std::string& name) { return QuantisedMatrix{.fault = name + " is missing"}; };
  // Scales of type F8_E4M3 are NVFP4's, which need one more for the whole matrix.
  const auto pairs_of = [&](const RawTensor& codes, const RawTensor& scales, const RawTensor* global,
                            const std::string& global_name, bool divides) {
    if (!global && scales.dtype == "F8_E4M3") return missing(global_name);
    return paired_codes(codes, scales, global, divides);
  };
  for (const auto& [name, raw] : files_.tensors()) {
    std::string stem;
    if (stem_of(name, ".qweight", stem)) {
      const RawTensor *scales = part(stem + ".scales"), *zeros = part(stem + ".qzeros"),
                      *groups = part(stem + ".g_idx");
      add(stem + ".weight",
          !scales  ? missing(stem + ".scales")
          : !zeros ? missing(stem + ".qzeros")
          : !quantisation
              ? QuantisedMatrix{.fault = "config.json has no quantization_config that says how it is packed"}
              : packed_columns(raw, *scales, *zeros, groups, layout),
          {&raw, scales, zeros, groups});
    } else if (stem_of(name, "_packed", stem)) {
      const RawTensor *scales = part(stem + "_scale"), *global = part(stem + "_global_scale"),
                      *shape = part(stem + "_shape"), *zeros = part(stem + "_zero_point"),
                      *groups = part(stem + "_g_idx");
      const bool pairs = raw.dtype == "U8";
      add(stem,
          !scales  ? missing(stem + "_scale")
          : pairs  ? pairs_of(raw, *scales, global, stem + "_global_scale", true)
          : !shape ? missing(stem + "_shape")
                   : packed_rows(raw, *scales, *shape, zeros, groups, layout),
          {&raw, scales, global, shape, zeros, groups});
    } else if (stem_of(name, ".absmax", stem) && part(stem)) {
      std::string state = stem + ".quant_state.bitsandbytes__nf4";
      if (!part(state)) state = stem + ".quant_state.bitsandbytes__fp4";
      const BlockTable table{part(stem),
                             &raw,
                             part(stem + ".quant_map"),
                             part(state),
                             part(stem + ".nested_absmax"),
                             part(stem + ".nested_quant_map")};
      add(stem, table.state ? table_codes(table) : missing(state),
          {table.codes, &raw, table.table, table.state, table.nested_largest, table.nested_table});
    } else if (stem_of(name, ".quant_map", stem) && part(stem) && !part(stem + ".absmax")) {
      add(stem, missing(stem + ".absmax"), {part(stem), &raw});
    } else if (stem_of(name, ".SCB", stem) && part(stem + ".weight")) {
      const RawTensor& codes = *part(stem + ".weight");
      if (codes.dtype != "I8") continue;
      add(stem + ".weight", scaled_codes(codes, raw, nullptr, layout, 1.0f / 127),
          {&codes, &raw, part(stem + ".weight_format")});
    } else if (is_fp8(raw) || raw.dtype == "I8" || raw.dtype == "U8") {
      const RawTensor* scales = part(name + "_scale_inv");
      if (!scales) scales = part(name + "_scale");
      if (!scales) continue;
      const RawTensor *global = part(name + "_scale_2"), *zeros = part(name + "_zero_point");
      if (raw.dtype == "U8") {
        add(name, pairs_of(raw, *scales, global, name + "_scale_2", false), {&raw, scales, global});
      } else {
        if (is_fp8(raw)) zeros = nullptr;
        add(name, scaled_codes(raw, *scales, zeros, layout), {&raw, scales, zeros});
      }
    }
  }
}

const RawTensor* CheckpointTensors::find(const std::string& name) const {
  if (const auto fault = faults_.find(name); fault != faults_.end()) fail(fault->second);
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

uint64_t CheckpointTensors::stored_bytes(const RawTensor& tensor) const {
  const auto parts = parts_.find(tensor.name);
  if (!tensor.rows || parts == parts_.end()) return tensor.bytes.size();
  uint64_t bytes = 0;
  for (const RawTensor* raw : parts->second) bytes += raw->bytes.size();
  return bytes;
}

void CheckpointTensors::release(const RawTensor& tensor, std::span<const std::byte> bytes) const {
  if (const auto dense = of_dense_.find(tensor.name); dense != of_dense_.end())
    return dense->second.first->release(*dense->second.first->find(dense->second.second), bytes);
  const auto parts = parts_.find(tensor.name);
  if (!tensor.rows || parts == parts_.end()) return files_.release(tensor, bytes);
  for (const RawTensor* raw : parts->second) files_.release(*raw, raw->bytes);
}

}  // namespace doppler
