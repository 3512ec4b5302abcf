#include "import/quantisation_config.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "import/family.h"
#include "tokenizer/regex.h"

namespace doppler {
namespace {

constexpr int kDeepest = 8;  // objects within objects that are searched for layouts

[[noreturn]] void refuse(const std::string& where, const std::string& expected, const std::string& got) {
  fail({.code = ErrorCode::kUnsupported,
        .what = "the checkpoint is already quantised in a way that cannot be read",
        .where = where,
        .expected = expected,
        .got = got,
        .todo = "Take the model it was made from, in safetensors, or a GGUF of it"});
}

std::string word(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  return value && value->is_string() ? value->text() : "";
}

// The format that AutoRound packed for: "auto_round:auto_gptq" is GPTQ's.
std::string method_of(const Json& quantisation) {
  const std::string method = word(quantisation, "quant_method");
  if (method != "auto-round") return method.empty() ? "unknown" : method;
  const std::string packing = word(quantisation, "packing_format");
  if (packing.ends_with("auto_gptq")) return "gptq";
  if (packing.ends_with("auto_awq")) return "awq";
  if (packing.ends_with("llm_compressor")) return "compressed-tensors";
  return "auto-round with packing_format '" + packing + "'";
}

void check_compressed_tensors(const Json& quantisation, const std::string& where) {
  static const std::set<std::string> known = {
      "",
      "dense",
      "float-quantized",
      "naive-quantized",
      "int-quantized",
      "pack-quantized",
      "nvfp4-pack-quantized",
      "mxfp4-pack-quantized",
      "mixed-precision",
  };
  constexpr const char* kExpected = "float-, int-, pack-, nvfp4-pack- or mxfp4-pack-quantized";
  const auto check_format = [&](const Json& object) {
    const std::string format = word(object, "format");
    if (!known.contains(format)) refuse(where, kExpected, "format '" + format + "' of compressed-tensors");
  };
  check_format(quantisation);
  if (const Json* groups = find(quantisation, "config_groups"); groups && groups->is_object()) {
    for (const auto& group : groups->items()) {
      if (group.value.is_object()) check_format(group.value);
    }
  }
  const Json* sparsity = find(quantisation, "sparsity_config");
  const std::string pattern = sparsity && sparsity->is_object() ? word(*sparsity, "format") : "";
  if (!pattern.empty() && pattern != "dense")
    refuse(where, "weights without gaps", "sparse weights ('" + pattern + "')");
  const Json* transform = find(quantisation, "transform_config");
  if (transform && transform->is_object() && !transform->empty())
    refuse(where, "weights that stand for themselves", "weights and activations that are rotated (transform_config)");
}

void collect(const Json& json, int depth, QuantisedLayout& layout) {
  if (!json.is_object() || depth > kDeepest) return;
  for (const auto& item : json.items()) {
    const Json& value = item.value;
    if ((item.key == "group_size" || item.key == "q_group_size") && value.is_number_integer())
      layout.group_sizes.insert(value.get<int64_t>());
    if ((item.key == "weight_block_size" || item.key == "block_structure") && value.is_array() && value.size() == 2 &&
        value[0].is_number_integer() && value[1].is_number_integer()) {
      layout.blocks.insert({value[0].get<int64_t>(), value[1].get<int64_t>()});
    }
    collect(value, depth + 1, layout);
  }
}

}  // namespace

const Json* quantisation_of(const Json& hf_config) {
  for (const Json* root : {&hf_config, find(hf_config, "text_config")}) {
    const Json* found = root && root->is_object() ? find(*root, "quantization_config") : nullptr;
    if (found && found->is_object()) return found;
  }
  return nullptr;
}

void check_quantisation(const Json& quantisation, const Json* also, const std::string& where) {
  const std::string method = method_of(quantisation);
  if (also && std::find(also->begin(), also->end(), method) != also->end()) return;
  static const std::set<std::string> known = {"fp8", "fbgemm_fp8", "modelopt",           "modelopt_fp4",
                                              "awq", "gptq",       "compressed-tensors", "bitsandbytes"};
  if (!known.contains(method))
    refuse(where, "BF16, F16, F32, FP8, NVFP4, AWQ, GPTQ, compressed-tensors or bitsandbytes", method);
  if (method == "compressed-tensors") check_compressed_tensors(quantisation, where);
  if (method == "gptq" || method == "awq") {
    for (const char* key : {"checkpoint_format", "version", "format"}) {
      std::string format = word(quantisation, key);
      std::transform(format.begin(), format.end(), format.begin(), [](unsigned char c) { return std::tolower(c); });
      if (format.starts_with("gemv") || format == "marlin" || format == "bitblas" || format == "qqq")
        refuse(where, method == "awq" ? "version 'gemm'" : "checkpoint_format 'gptq' or 'gptq_v2'",
               std::string(key) + " '" + format + "' of " + method);
    }
    const Json* marlin = find(quantisation, "is_marlin_format");
    if (marlin && marlin->is_boolean() && marlin->get<bool>()) refuse(where, "checkpoint_format 'gptq'", "marlin");
  }
  if (method.starts_with("modelopt")) {
    const std::string algorithm = word(quantisation, "quant_algo");
    for (const char* scaled : {"AWQ", "SVD"}) {
      if (algorithm.find(scaled) != std::string::npos)
        refuse(where, "FP8 or NVFP4", "quant_algo '" + algorithm + "' of modelopt");
    }
  }
}

QuantisedLayout layout_of(const Json* quantisation) {
  QuantisedLayout layout;
  if (!quantisation) return layout;
  collect(*quantisation, 0, layout);
  layout.zeros_less_one = word(*quantisation, "checkpoint_format") != "gptq_v2";
  const Json* symmetric = find(*quantisation, "sym");
  layout.symmetric = symmetric && symmetric->is_boolean() && symmetric->get<bool>();
  return layout;
}

std::vector<std::string> unquantised_modules(const Json& hf_config) {
  std::vector<std::string> out;
  const Json* quantisation = quantisation_of(hf_config);
  if (!quantisation) return out;
  for (const char* key : {"modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules"}) {
    const Json* list = find(*quantisation, key);
    if (!list || !list->is_array()) continue;
    for (const Json& name : *list) {
      if (name.is_string()) out.push_back(name.text());
    }
  }
  return out;
}

bool matches_module(const std::string& pattern, const std::string& tensor) {
  if (!pattern.starts_with("re:")) return glob_match(pattern, tensor) || glob_match(pattern + ".*", tensor);
  const Regex regex = Regex::compile(std::string_view(pattern).substr(3), "quantization_config: " + pattern);
  TextEffort effort(tensor.size());
  const size_t dot = tensor.rfind('.');
  const std::string_view module = std::string_view(tensor).substr(0, dot);  // .weight is no part of it
  const std::optional<Span> match = RegexMatcher(regex, module, effort).find(0);
  return match && match->begin == 0;
}

}  // namespace doppler
