// config.json → ModelConfig, by what the family file says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>
#include <variant>

#include "base/error.h"
#include "base/files.h"
#include "import/config_reader.h"
#include "import/family.h"
#include "import/quantisation_config.h"
#include "import/sentence_modules.h"

namespace doppler {
namespace {

using Field = std::variant<int ModelConfig::*, float ModelConfig::*, bool ModelConfig::*>;

// In the order in which they are computed: an expression may use the fields above its own.
constexpr std::pair<const char*, Field> kFields[] = {
    {"hidden", &ModelConfig::hidden},
    {"ffn", &ModelConfig::ffn},
    {"heads", &ModelConfig::heads},
    {"kv_heads", &ModelConfig::kv_heads},
    {"head_dim", &ModelConfig::head_dim},
    {"vocab", &ModelConfig::vocab},
    {"max_context", &ModelConfig::max_context},
    {"norm_eps", &ModelConfig::norm_eps},
    {"norm_offset", &ModelConfig::norm_offset},
    {"embed_scale", &ModelConfig::embed_scale},
    {"attn_scale", &ModelConfig::attn_scale},
    {"attn_softcap", &ModelConfig::attn_softcap},
    {"logit_softcap", &ModelConfig::logit_softcap},
    {"logit_scale", &ModelConfig::logit_scale},
    {"residual_scale", &ModelConfig::residual_scale},
    {"qk_norm", &ModelConfig::qk_norm},
    {"qk_norm_whole", &ModelConfig::qk_norm_whole},
    {"v_norm", &ModelConfig::v_norm},
    {"pre_norms", &ModelConfig::pre_norms},
    {"post_attn_norm", &ModelConfig::post_attn_norm},
    {"post_ffn_norm", &ModelConfig::post_ffn_norm},
    {"qkv_bias", &ModelConfig::qkv_bias},
    {"o_bias", &ModelConfig::o_bias},
    {"attn_sinks", &ModelConfig::attn_sinks},
    {"attn_gate", &ModelConfig::attn_gate},
    {"tied_output", &ModelConfig::tied_output},
    {"causal", &ModelConfig::causal},
    {"swiglu_limit", &ModelConfig::swiglu_limit},
    {"swiglu_alpha", &ModelConfig::swiglu_alpha},
    {"experts", &ModelConfig::experts},
    {"experts_per_token", &ModelConfig::experts_per_token},
    {"expert_ffn", &ModelConfig::expert_ffn},
    {"expert_bias", &ModelConfig::expert_bias},
    {"route_normalized", &ModelConfig::route_normalized},
    {"shared_ffn", &ModelConfig::shared_ffn},
    {"ffn_beside_experts", &ModelConfig::ffn_beside_experts},
    {"layer_scale", &ModelConfig::layer_scale},
    {"layer_input", &ModelConfig::layer_input},
    {"conv_kernel", &ModelConfig::conv_kernel},
    {"delta_key_heads", &ModelConfig::delta_key_heads},
    {"delta_value_heads", &ModelConfig::delta_value_heads},
    {"delta_key_dim", &ModelConfig::delta_key_dim},
    {"delta_value_dim", &ModelConfig::delta_value_dim},
};

void set_field(ModelConfig& config, const char* name, const Field& field, const Json& expression,
               ConfigReader& reader) {
  if (const auto* whole = std::get_if<int ModelConfig::*>(&field)) {
    const int64_t value = reader.integer(expression);
    if (value < 0 || value > (1 << 28)) {
      fail({.code = ErrorCode::kFormat,
            .what = "a size is out of range",
            .where = reader.where() + ": " + name,
            .expected = "0 to 2^28",
            .got = std::to_string(value)});
    }
    config.*(*whole) = static_cast<int>(value);
    reader.remember(name, static_cast<double>(value));
  } else if (const auto* real = std::get_if<float ModelConfig::*>(&field)) {
    const double value = reader.number(expression);
    config.*(*real) = static_cast<float>(value);
    reader.remember(name, value);
  } else {
    config.*std::get<bool ModelConfig::*>(field) = reader.boolean(expression);
  }
}

Activation activation_named(const std::string& name, const std::string& where) {
  for (const Activation a : {Activation::kGeluTanh, Activation::kSilu, Activation::kClampedSwiglu}) {
    if (name_of(a) == name) return a;
  }
  fail({.code = ErrorCode::kFormat,
        .what = "an unknown activation",
        .where = where,
        .expected = "gelu_tanh, silu or clamped_swiglu",
        .got = name});
}

void read_fields(ModelConfig& config, const Family& family, ConfigReader& reader) {
  const std::string where = family.file + ": config";
  const Json& fields = require_object(family.json, "config", family.file);
  for (const auto& [name, field] : kFields) {
    if (const Json* expression = find(fields, name)) set_field(config, name, field, *expression, reader);
  }
  config.activation = activation_named(reader.string(require(fields, "activation", where)), where);
  for (const auto& item : fields.items()) {
    const bool known = item.key == "activation" || std::any_of(std::begin(kFields), std::end(kFields),
                                                               [&](const auto& f) { return f.first == item.key; });
    if (!known)
      fail({.code = ErrorCode::kFormat,
            .what = "the family sets a field that does not exist",
            .where = where,
            .got = item.key});
  }
}

// Keys whose value must be one of a few: what this family's mathematics takes for granted.
void check_fixed(const Family& family, ConfigReader& reader) {
  const Json* fixed = find(family.json, "fixed");
  if (!fixed) return;
  for (const auto& item : fixed->items()) {
    const Json* got = reader.key(item.key);
    const Json& allowed = require_array(*fixed, item.key, family.file + ": fixed");
    if (got && std::find(allowed.begin(), allowed.end(), *got) == allowed.end()) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the model's configuration asks for something this family cannot do",
            .where = reader.where() + ": " + item.key,
            .expected = brief(allowed),
            .got = brief(*got)});
    }
  }
}

void check_quantization(const Family& family, ConfigReader& reader) {
  const Json* quantization = reader.key("quantization_config");
  if (!quantization) return;
  check_quantisation(*quantization, find(family.json, "quantization_methods"),
                     reader.where() + ": quantization_config");
}

// Adds those that are not there yet.
void add_new(std::span<const int32_t> ids, std::vector<int32_t>& out) {
  std::set<int32_t> seen(out.begin(), out.end());
  for (const int32_t id : ids) {
    if (seen.insert(id).second) out.push_back(id);
  }
}

void add_ids(const Json* ids, std::vector<int32_t>& out, const std::string& where) {
  if (!ids) return;
  std::vector<int32_t> values;
  for (const Json& id : ids->is_array() ? *ids : Json::array({*ids})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      fail({.code = ErrorCode::kFormat, .what = "a token id is not a whole number", .where = where, .got = brief(id)});
    }
    values.push_back(id.get<int32_t>());
  }
  add_new(values, out);
}

std::set<std::string> common_keys() {
  std::set<std::string> keys;
  for (const EmbeddedFamily& embedded : embedded_families()) {
    if (embedded.file != "common.json") continue;
    const Json common = parse_json(embedded.text, "families/common.json");
    for (const Json& key : require_array(common, "ignored_keys", "families/common.json"))
      keys.insert(key.get<std::string>());
  }
  return keys;
}

void check_unread(const Family& family, const Json& object, const ConfigReader& reader,
                  const std::set<std::string>& harmless, const std::string& root_key) {
  static const std::set<std::string> common = common_keys();
  std::set<std::string> own;
  if (const Json* list = find(family.json, "ignored_keys")) {
    for (const Json& key : *list) own.insert(key.is_string() ? key.get<std::string>() : "");
  }
  std::vector<std::string> unread;
  for (const auto& item : object.items()) {
    const std::string& key = item.key;
    const bool known = item.value.is_null() || key == root_key || reader.used().count(key) || common.count(key) ||
                       own.count(key) || harmless.count(key);
    if (!known) unread.push_back(fmt::format("{} = {}", key, brief(item.value)));
  }
  if (unread.empty()) return;
  fail({.code = ErrorCode::kUnsupported,
        .what = "the model's configuration has keys that may change what it computes",
        .where = reader.where(),
        .got = fmt::format("{}", fmt::join(unread, "; ")),
        .todo = "If a key changes nothing, say so with --ignore-key, or list it in " + family.file});
}

}  // namespace

ModelConfig config_from_hf(const Family& family, const Json& hf_config, const std::string& where,
                           const std::set<std::string>& harmless) {
  if (!hf_config.is_object())
    fail({.code = ErrorCode::kFormat,
          .what = "the configuration is not a JSON object",
          .where = where,
          .got = brief(hf_config)});
  const Json* root = &hf_config;
  std::string root_key;
  for (const Json& name : require_array(family.json, "config_roots", family.file)) {
    const std::string key = name.is_string() ? name.get<std::string>() : "";
    if (key.empty()) break;
    if (find(hf_config, key)) {
      root = &require_object(hf_config, key, where);
      root_key = key;
      break;
    }
  }
  ConfigReader reader(*root, hf_config, root_key.empty() ? where : where + ": " + root_key, family.file);
  ModelConfig config;
  config.id = family.name;
  read_fields(config, family, reader);
  read_layers(config, family, reader);
  check_fixed(family, reader);
  check_quantization(family, reader);
  add_ids(reader.key("eos_token_id"), config.eos_ids, where + ": eos_token_id");
  std::vector<int32_t> bos;
  add_ids(reader.key("bos_token_id"), bos, where + ": bos_token_id");
  if (!bos.empty()) config.bos_id = bos.front();
  check_unread(family, *root, reader, harmless, "");
  if (root != &hf_config) check_unread(family, hf_config, reader, harmless, root_key);
  return config;
}

void add_embedding(const std::filesystem::path& folder, ModelConfig& config) {
  config.embedding = read_sentence_modules(folder).embedding;
}

void add_generation_ids(const std::filesystem::path& folder, ModelConfig& config) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!file_exists(path)) return;
  const Json generation = parse_json(read_text_file(path), path.string());
  std::vector<int32_t> ids;
  add_ids(find(generation, "eos_token_id"), ids, path.string() + ": eos_token_id");
  add_new(config.eos_ids, ids);
  config.eos_ids = std::move(ids);
  const int64_t bos = int_or(generation, "bos_token_id", -1, path.string());
  if (config.bos_id < 0 && bos >= 0 && bos <= INT32_MAX) config.bos_id = static_cast<int32_t>(bos);
}

}  // namespace doppler
