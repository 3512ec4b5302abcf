// config.json → ModelConfig, by what the family file says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <variant>

#include "base/error.h"
#include "base/files.h"
#include "import/config_reader.h"
#include "import/family.h"

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
    {"qk_norm", &ModelConfig::qk_norm},
    {"post_attn_norm", &ModelConfig::post_attn_norm},
    {"post_ffn_norm", &ModelConfig::post_ffn_norm},
    {"qkv_bias", &ModelConfig::qkv_bias},
    {"o_bias", &ModelConfig::o_bias},
    {"attn_sinks", &ModelConfig::attn_sinks},
    {"tied_output", &ModelConfig::tied_output},
    {"swiglu_limit", &ModelConfig::swiglu_limit},
    {"swiglu_alpha", &ModelConfig::swiglu_alpha},
    {"experts", &ModelConfig::experts},
    {"experts_per_token", &ModelConfig::experts_per_token},
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
    const bool known = item.key() == "activation" || std::any_of(std::begin(kFields), std::end(kFields),
                                                                 [&](const auto& f) { return f.first == item.key(); });
    if (!known)
      fail({.code = ErrorCode::kFormat,
            .what = "the family sets a field that does not exist",
            .where = where,
            .got = item.key()});
  }
}

constexpr const char* kRopeKeys[] = {"rope_type",
                                     "type",
                                     "rope_theta",
                                     "factor",
                                     "low_freq_factor",
                                     "high_freq_factor",
                                     "original_max_position_embeddings",
                                     "beta_fast",
                                     "beta_slow",
                                     "truncate",
                                     "attention_factor",
                                     "partial_rotary_factor"};

RopeScaling scaling_named(const std::string& name, const std::string& where) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  fail({.code = ErrorCode::kUnsupported,
        .what = "this rope scaling is not supported",
        .where = where,
        .expected = "default, linear, llama3 or yarn",
        .got = name});
}

// `parameters` is one rope's object: what transformers 4 calls rope_scaling, or transformers 5 rope_parameters.
void read_scaling(RopeConfig& rope, const Json& parameters, const std::string& where) {
  for (const auto& item : parameters.items()) {
    const bool known = std::find(std::begin(kRopeKeys), std::end(kRopeKeys), item.key()) != std::end(kRopeKeys);
    if (!known && !item.value().is_null()) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a rope setting is not supported",
            .where = where,
            .got = fmt::format("{} = {}", item.key(), brief(item.value()))});
    }
  }
  if (number_or(parameters, "partial_rotary_factor", 1, where) != 1) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "rotary embeddings of a part of the head are not supported",
          .where = where,
          .expected = "partial_rotary_factor 1",
          .got = brief(parameters)});
  }
  rope.scaling =
      scaling_named(string_or(parameters, "rope_type", string_or(parameters, "type", "default", where), where), where);
  if (rope.scaling == RopeScaling::kNone) return;
  rope.factor = require_number(parameters, "factor", where);
  if (rope.scaling == RopeScaling::kLinear) return;
  rope.original_context = number_or(parameters, "original_max_position_embeddings", rope.original_context, where);
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = require_number(parameters, "low_freq_factor", where);
    rope.high_freq_factor = require_number(parameters, "high_freq_factor", where);
  } else {
    rope.beta_fast = number_or(parameters, "beta_fast", rope.beta_fast, where);
    rope.beta_slow = number_or(parameters, "beta_slow", rope.beta_slow, where);
    rope.truncate = bool_or(parameters, "truncate", rope.truncate, where);
    rope.attention_factor = number_or(parameters, "attention_factor", rope.attention_factor, where);
  }
}

// One rope of the family. `name` is also its key in a rope_parameters that tells layer types apart.
RopeConfig read_rope(const std::string& name, const Json& spec, ConfigReader& reader) {
  RopeConfig rope;
  rope.theta = reader.number(require(spec, "theta", reader.family_where() + ": ropes." + name));
  const double original = find(spec, "original_context") ? reader.number(spec["original_context"]) : 0;
  rope.original_context = original;
  const Json* scaled = find(spec, "scaling");
  const Json* old_style = scaled && scaled->is_string() ? reader.key(scaled->get<std::string>()) : nullptr;
  const Json* parameters = reader.key("rope_parameters");
  std::string where = reader.where() + ": rope_parameters";
  if (parameters && find(*parameters, name)) {
    parameters = find(*parameters, name);
    where += "." + name;
  } else if (!parameters || !scaled || !(find(*parameters, "rope_theta") || find(*parameters, "rope_type"))) {
    // Without an object of its own a rope takes the one that is there for all, if it is the kind that is scaled.
    parameters = old_style;
    where = reader.where() + ": rope_scaling";
  }
  if (parameters) {
    if (!parameters->is_object()) {
      fail({.code = ErrorCode::kFormat,
            .what = "rope settings must be an object",
            .where = where,
            .got = brief(*parameters)});
    }
    rope.theta = number_or(*parameters, "rope_theta", rope.theta, where);
    read_scaling(rope, *parameters, where);
  }
  const bool needs_original = rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn;
  if (!needs_original) rope.original_context = 0;
  return rope;
}

std::vector<std::string> layer_kinds(const Json& layers, int count, ConfigReader& reader) {
  const std::string where = reader.family_where() + ": layers";
  const std::string last = require_string(layers, "last", where), rest = require_string(layers, "rest", where);
  // The pattern's keys count as read even where layer_types, which wins, makes them unnecessary.
  const int64_t period = reader.integer(require(layers, "period", where));
  std::vector<std::string> kinds;
  const std::string types_key = string_or(layers, "types", "", where);
  const Json* types = types_key.empty() ? nullptr : reader.key(types_key);
  if (types) {
    const std::string at = reader.where() + ": " + types_key;
    if (!types->is_array() || types->size() != static_cast<size_t>(count)) {
      fail({.code = ErrorCode::kFormat,
            .what = "the layer types do not cover every layer",
            .where = at,
            .expected = std::to_string(count),
            .got = types->is_array() ? std::to_string(types->size()) : brief(*types)});
    }
    for (const Json& type : *types) kinds.push_back(type.is_string() ? type.get<std::string>() : brief(type));
    return kinds;
  }
  if (period < 1 || period > 4096) {
    fail({.code = ErrorCode::kFormat,
          .what = "the layer pattern is out of range",
          .where = reader.where(),
          .expected = "1 to 4096",
          .got = std::to_string(period)});
  }
  for (int i = 0; i < count; ++i) kinds.push_back((i + 1) % period == 0 ? last : rest);
  return kinds;
}

// ModelConfig::layers and ::ropes from the family's "layers" and "ropes", in both dialects of config.json:
// rope_theta / rope_scaling / a pattern (transformers 4), and rope_parameters / layer_types (transformers 5).
void read_layers(ModelConfig& config, const Family& family, ConfigReader& reader) {
  const Json& layers = require_object(family.json, "layers", family.file);
  const Json& ropes = require_object(family.json, "ropes", family.file);
  const Json& kinds = require_object(layers, "kinds", family.file + ": layers");
  const int64_t count = reader.integer(require(layers, "count", family.file + ": layers"));
  if (count < 1 || count > 4096) {
    fail({.code = ErrorCode::kFormat,
          .what = "the number of layers is out of range",
          .where = reader.where(),
          .expected = "1 to 4096",
          .got = std::to_string(count)});
  }
  std::vector<std::string> rope_names;
  for (const auto& item : ropes.items()) {
    rope_names.push_back(item.key());
    config.ropes.push_back(read_rope(item.key(), item.value(), reader));
  }
  if (const Json* parameters = reader.key("rope_parameters")) {
    for (const auto& item : parameters->items()) {
      const bool named = std::find(rope_names.begin(), rope_names.end(), item.key()) != rope_names.end();
      if (item.value().is_object() && !named) {
        fail({.code = ErrorCode::kUnsupported,
              .what = "a rope of the configuration is unknown to the family",
              .where = reader.where() + ": rope_parameters",
              .expected = fmt::format("{}", fmt::join(rope_names, " or ")),
              .got = item.key()});
      }
    }
  }
  std::vector<std::pair<std::string, LayerConfig>> known;
  for (const auto& item : kinds.items()) {
    const std::string where = family.file + ": layers.kinds." + item.key();
    const int64_t window = reader.integer(require(item.value(), "window", where));
    const std::string rope = require_string(item.value(), "rope", where);
    const auto it = std::find(rope_names.begin(), rope_names.end(), rope);
    if (it == rope_names.end() || window < 0 || window > (1 << 28)) {
      fail({.code = ErrorCode::kFormat,
            .what = "a kind of layer cannot be",
            .where = where,
            .expected = "a window and a known rope",
            .got = brief(item.value())});
    }
    known.push_back({item.key(), {static_cast<int>(window), static_cast<int>(it - rope_names.begin())}});
  }
  for (const std::string& kind : layer_kinds(layers, static_cast<int>(count), reader)) {
    const auto it = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == kind; });
    if (it == known.end()) {
      std::vector<std::string> names;
      for (const auto& k : known) names.push_back(k.first);
      fail({.code = ErrorCode::kUnsupported,
            .what = "this kind of layer is not supported",
            .where = reader.where(),
            .expected = fmt::format("{}", fmt::join(names, " or ")),
            .got = kind});
    }
    config.layers.push_back(it->second);
  }
}

// Keys whose value must be one of a few: what this family's mathematics takes for granted.
void check_fixed(const Family& family, ConfigReader& reader) {
  const Json* fixed = find(family.json, "fixed");
  if (!fixed) return;
  for (const auto& item : fixed->items()) {
    const Json* got = reader.key(item.key());
    const Json& allowed = require_array(*fixed, item.key(), family.file + ": fixed");
    if (got && std::find(allowed.begin(), allowed.end(), *got) == allowed.end()) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the model's configuration asks for something this family cannot do",
            .where = reader.where() + ": " + item.key(),
            .expected = brief(allowed),
            .got = brief(*got)});
    }
  }
}

void check_quantization(const Family& family, ConfigReader& reader) {
  const Json* quantization = reader.key("quantization_config");
  if (!quantization) return;
  const std::string where = reader.where() + ": quantization_config";
  const std::string method = string_or(*quantization, "quant_method", "unknown", where);
  if (const Json* known = find(family.json, "quantization_methods")) {
    if (std::find(known->begin(), known->end(), method) != known->end()) return;
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "the checkpoint is already quantised in a way that cannot be read",
        .where = where,
        .expected = "BF16, F16 or F32 weights",
        .got = method,
        .todo = "Convert the original, unquantised checkpoint"});
}

void add_ids(const Json* ids, std::vector<int32_t>& out, const std::string& where) {
  if (!ids) return;
  for (const Json& id : ids->is_array() ? *ids : Json::array({*ids})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      fail({.code = ErrorCode::kFormat, .what = "a token id is not a whole number", .where = where, .got = brief(id)});
    }
    const auto value = id.get<int32_t>();
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
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
    const std::string& key = item.key();
    const bool known = item.value().is_null() || key == root_key || reader.used().count(key) || common.count(key) ||
                       own.count(key) || harmless.count(key);
    if (!known) unread.push_back(fmt::format("{} = {}", key, brief(item.value())));
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

void add_generation_ids(const std::filesystem::path& folder, ModelConfig& config) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!file_exists(path)) return;
  const Json generation = parse_json(read_text_file(path), path.string());
  std::vector<int32_t> ids;
  add_ids(find(generation, "eos_token_id"), ids, path.string() + ": eos_token_id");
  for (const int32_t id : config.eos_ids) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  config.eos_ids = std::move(ids);
  const int64_t bos = int_or(generation, "bos_token_id", -1, path.string());
  if (config.bos_id < 0 && bos >= 0 && bos <= INT32_MAX) config.bos_id = static_cast<int32_t>(bos);
}

}  // namespace doppler
