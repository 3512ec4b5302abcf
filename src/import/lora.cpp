#include "import/lora.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "format/decode.h"

namespace doppler {
namespace {

constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";
constexpr int64_t kMaxRank = 4096;

Json read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "adapter_config.json";
  if (!file_exists(path)) {
    fail({.code = ErrorCode::kFile,
          .what = "this is not an adapter",
          .where = folder.string(),
          .expected = "a folder with adapter_config.json and adapter_model.safetensors",
          .todo = "Check the path"});
  }
  return parse_json(read_text_file(path), path.string());
}

void check_config(const Json& config, const std::string& where) {
  const auto refuse = [&](const char* key, const std::string& expected) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the adapter asks for something that is not supported",
          .where = where + ": " + key,
          .expected = expected,
          .got = brief(config[key])});
  };
  if (string_or(config, "peft_type", "LORA", where) != "LORA") refuse("peft_type", "LORA");
  if (string_or(config, "bias", "none", where) != "none") refuse("bias", "none");
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias"}) {
    if (bool_or(config, key, false, where)) refuse(key, "false");
  }
  for (const char* key : {"modules_to_save", "trainable_token_indices", "target_parameters", "rank_pattern",
                          "alpha_pattern", "layer_replication"}) {
    if (const Json* value = find(config, key); value && !value->empty()) refuse(key, "nothing");
  }
}

}  // namespace

LoraAdapter::LoraAdapter(const std::filesystem::path& folder) : config_(read_config(folder)), file_(folder) {
  const std::string where = (folder / "adapter_config.json").string();
  check_config(config_, where);
  const double rank = require_number(config_, "r", where), alpha = require_number(config_, "lora_alpha", where);
  const bool by_root = bool_or(config_, "use_rslora", false, where);
  const auto refuse = [&](const std::string& what, const std::string& name, const std::string& expected) {
    fail({.code = ErrorCode::kFormat,
          .what = what,
          .where = folder.string() + ": " + name,
          .expected = expected,
          .todo = "The adapter is damaged, or of a kind that is not supported"});
  };
  if (!(rank >= 1 && rank <= kMaxRank) || !std::isfinite(alpha)) refuse("the adapter's rank is out of range", "r", "");
  for (const auto& [name, raw] : file_.tensors()) {
    const bool is_a = name.ends_with(kA), is_b = name.ends_with(kB);
    Tensor tensor;
    if (!name.starts_with(kPrefix) || !(is_a || is_b) || raw.shape.size() != 2 || !to_tensor(raw, tensor)) {
      refuse("a tensor of the adapter is none of a thin product", name, "….lora_A.weight and ….lora_B.weight");
    }
    const size_t end = name.size() - (is_a ? kA : kB).size();
    Delta& delta = deltas_[name.substr(kPrefix.size(), end - kPrefix.size()) + ".weight"];
    (is_a ? delta.a : delta.b) = tensor;
    delta.scale = static_cast<float>(alpha / (by_root ? std::sqrt(rank) : rank));
  }
  for (const auto& [name, delta] : deltas_) {
    if (delta.a.shape.empty() || delta.b.shape.empty() || delta.a.shape[0] != static_cast<int64_t>(rank) ||
        delta.b.shape[1] != delta.a.shape[0]) {
      refuse("the halves of a thin product do not fit", name, fmt::format("[{0}, in] and [out, {0}]", rank));
    }
  }
}

const LoraAdapter::Delta* LoraAdapter::find(const std::string& tensor) const {
  const auto found = deltas_.find(tensor);
  return found == deltas_.end() ? nullptr : &found->second;
}

void add_lora_row(const LoraAdapter::Delta& delta, int64_t row, float* values, float* scratch) {
  const auto rank = static_cast<size_t>(delta.b.cols()), cols = static_cast<size_t>(delta.a.cols());
  std::vector<float> factors(rank);
  decode_row(delta.b.dtype, delta.b.row(row), factors.data(), rank);
  for (size_t k = 0; k < rank; ++k) {
    decode_row(delta.a.dtype, delta.a.row(static_cast<int64_t>(k)), scratch, cols);
    for (size_t i = 0; i < cols; ++i) values[i] += delta.scale * factors[k] * scratch[i];
  }
}

}  // namespace doppler
