// The layers of a model and their rotary embeddings, by what the family file says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "import/config_reader.h"
#include "import/family.h"

namespace doppler {
namespace {

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
                                     "mscale",
                                     "mscale_all_dim",
                                     "short_factor",
                                     "long_factor",
                                     "llama_4_scaling_beta",
                                     "max_position_embeddings",
                                     "partial_rotary_factor",
                                     "mrope_section",  // equal to ours for text
                                     "mrope_interleaved"};

RopeScaling scaling_named(const std::string& name, const std::string& where) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  if (name == "longrope" || name == "su") return RopeScaling::kLongRope;
  if (name == "proportional") return RopeScaling::kProportional;
  fail({.code = ErrorCode::kUnsupported,
        .what = "this rope scaling is not supported",
        .where = where,
        .expected = "default, linear, llama3, yarn, longrope or proportional",
        .got = name});
}

std::vector<double> factors_of(const Json& parameters, const char* key, const std::string& where) {
  std::vector<double> out;
  for (const Json& factor : require_array(parameters, key, where)) {
    if (!factor.is_number())
      fail({.code = ErrorCode::kFormat, .what = "a rope factor is no number", .where = where, .got = brief(factor)});
    out.push_back(factor.get<double>());
  }
  return out;
}

// What YaRN multiplies cosines and sines by: 0 where nobody says it.
double yarn_magnitude(const RopeConfig& rope, const Json& parameters, const std::string& where) {
  const double one = number_or(parameters, "mscale", 0, where), all = number_or(parameters, "mscale_all_dim", 0, where);
  const auto magnitude = [&](double scale) { return rope.factor > 1 ? 0.1 * scale * std::log(rope.factor) + 1 : 1; };
  const double otherwise = one != 0 && all != 0 ? magnitude(one) / magnitude(all) : 0;
  return number_or(parameters, "attention_factor", otherwise, where);
}

// `parameters` is one rope's object: what transformers 4 calls rope_scaling, or transformers 5 rope_parameters.
void read_scaling(RopeConfig& rope, const Json& parameters, int max_context, const std::string& where) {
  for (const auto& item : parameters.items()) {
    const bool known = std::find(std::begin(kRopeKeys), std::end(kRopeKeys), item.key) != std::end(kRopeKeys);
    if (!known && !item.value.is_null()) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a rope setting is not supported",
            .where = where,
            .got = fmt::format("{} = {}", item.key, brief(item.value))});
    }
  }
  rope.rotated = number_or(parameters, "partial_rotary_factor", rope.rotated, where);
  const bool factors = find(parameters, "long_factor");  // the first of these models called their scaling yarn
  rope.scaling =
      factors ? RopeScaling::kLongRope
              : scaling_named(
                    string_or(parameters, "rope_type", string_or(parameters, "type", "default", where), where), where);
  if (rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kProportional) return;
  rope.original_context = number_or(parameters, "original_max_position_embeddings", rope.original_context, where);
  if (rope.scaling == RopeScaling::kLongRope) {
    rope.short_factors = factors_of(parameters, "short_factor", where);
    rope.long_factors = factors_of(parameters, "long_factor", where);
    const double stretch = rope.original_context > 0 ? max_context / rope.original_context : 1;
    rope.factor = number_or(parameters, "factor", stretch, where);
    const double original = rope.original_context;
    const double magnitude =
        rope.factor > 1 && original > 1 ? std::sqrt(1 + std::log(rope.factor) / std::log(original)) : 1;
    rope.attention_factor = number_or(parameters, "attention_factor", magnitude, where);
    return;
  }
  rope.factor = require_number(parameters, "factor", where);
  if (rope.scaling == RopeScaling::kLinear) return;
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = require_number(parameters, "low_freq_factor", where);
    rope.high_freq_factor = require_number(parameters, "high_freq_factor", where);
  } else {
    rope.beta_fast = number_or(parameters, "beta_fast", rope.beta_fast, where);
    rope.beta_slow = number_or(parameters, "beta_slow", rope.beta_slow, where);
    rope.truncate = bool_or(parameters, "truncate", rope.truncate, where);
    rope.attention_factor = yarn_magnitude(rope, parameters, where);
    rope.query_beta = number_or(parameters, "llama_4_scaling_beta", 0, where);
  }
}

// One rope of the family. `name` is also its key in a rope_parameters that tells layer types apart.
RopeConfig read_rope(const std::string& name, const Json& spec, int max_context, ConfigReader& reader) {
  RopeConfig rope;
  if (const Json* rotated = find(spec, "rotated")) rope.rotated = reader.number(*rotated);
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
    read_scaling(rope, *parameters, max_context, where);
  }
  if (rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kLinear) rope.original_context = 0;
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

int size_of(int64_t value, const std::string& where) {
  if (value >= 0 && value <= (1 << 28)) return static_cast<int>(value);
  fail({.code = ErrorCode::kFormat,
        .what = "a size is out of range",
        .where = where,
        .expected = "0 to 2^28",
        .got = std::to_string(value)});
}

bool is_marked(const Json& mark, int layer, ConfigReader& reader, const std::string& where) {
  const auto list = [&](const char* kind) -> const Json* {
    const Json* key = find(mark, kind);
    const Json* values = key && key->is_string() ? reader.key(key->get<std::string>()) : nullptr;
    if (values && !values->is_array())
      fail({.code = ErrorCode::kFormat, .what = "a list is needed", .where = reader.where(), .got = brief(*values)});
    return values;
  };
  const Json* every = find(mark, "every");
  const int64_t period = every ? reader.integer(*every) : 0;
  const Json *flags = list("zero_in"), *listed = list("listed_in");
  if (listed && std::find(listed->begin(), listed->end(), Json(layer)) != listed->end()) return true;
  if (flags) {
    if (flags->size() <= static_cast<size_t>(layer))
      fail({.code = ErrorCode::kFormat,
            .what = "a list does not cover every layer",
            .where = reader.where() + ": " + require_string(mark, "zero_in", where),
            .got = std::to_string(flags->size())});
    return (*flags)[static_cast<size_t>(layer)] == Json(0);
  }
  const bool regular = period > 0 && (layer + 1) % period == 0;
  return every && regular != bool_or(mark, "others", false, where);
}

Mixer mixer_of(const Json& item, Mixer otherwise, const std::string& where) {
  if (!find(item, "mixer")) return otherwise;
  const std::string name = require_string(item, "mixer", where);
  for (const Mixer mixer : {Mixer::kAttention, Mixer::kShortConv, Mixer::kDeltaNet}) {
    if (name_of(mixer) == name) return mixer;
  }
  fail({.code = ErrorCode::kFormat,
        .what = "an unknown mixer",
        .where = where,
        .expected = "attention, short_conv or delta_net",
        .got = name});
}

// What single layers have that the others of their kind do not.
void mark_layers(ModelConfig& config, const Json& layers, const std::vector<std::string>& ropes, ConfigReader& reader) {
  const Json* marks = find(layers, "marks");
  if (!marks) return;
  const std::string where = reader.family_where() + ": layers.marks";
  for (const Json& mark : *marks) {
    const Json& set = require_object(mark, "set", where);
    for (int i = 0; i < config.layer_count(); ++i) {
      if (!is_marked(mark, i, reader, where)) continue;
      LayerConfig& layer = config.layers[static_cast<size_t>(i)];
      layer.dense = bool_or(set, "dense", layer.dense, where);
      layer.mixer = mixer_of(set, layer.mixer, where);
      if (!find(set, "rope")) continue;
      const auto rope = std::find(ropes.begin(), ropes.end(), require_string(set, "rope", where));
      if (rope == ropes.end())
        fail({.code = ErrorCode::kFormat, .what = "an unknown rope", .where = where, .got = brief(set)});
      layer.rope = static_cast<int>(rope - ropes.begin());
    }
  }
}

// Heads of a kind of layer. Where k_proj makes keys and values, there may be another number of them.
void read_heads(LayerConfig& layer, const Json& kind, ConfigReader& reader, const std::string& where) {
  if (const Json* dim = find(kind, "head_dim")) layer.head_dim = size_of(reader.integer(*dim), where);
  const Json* joint = find(kind, "values_are_keys");
  if (!joint) return;
  layer.values_are_keys = reader.boolean(require(*joint, "if", where));
  const int64_t heads = reader.integer(require(*joint, "kv_heads", where));
  if (layer.values_are_keys) layer.kv_heads = size_of(heads, where);
}

// What config.json says of single layers, by their numbers: {"5": {"head_dim": 512}}.
void read_own_sizes(ModelConfig& config, const Json& layers, ConfigReader& reader) {
  const Json* own = find(layers, "own_sizes");
  if (!own) return;
  const std::string where = reader.family_where() + ": layers.own_sizes";
  const std::string key = require_string(*own, "key", where);
  const Json* sizes = reader.key(key);
  if (!sizes) return;
  const Json& fields = require_object(*own, "fields", where);
  static constexpr std::pair<const char*, int LayerConfig::*> kFields[] = {
      {"head_dim", &LayerConfig::head_dim}, {"kv_heads", &LayerConfig::kv_heads}, {"ffn", &LayerConfig::ffn}};
  for (const auto& [number, object] : sizes->items()) {
    const std::string at = reader.where() + ": " + key + "." + number;
    int i = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), i);
    if (error != std::errc() || end != number.data() + number.size() || i < 0 || i >= config.layer_count() ||
        !object.is_object())
      fail({.code = ErrorCode::kFormat, .what = "there is no such layer", .where = at});
    for (const auto& [name, value] : object.items()) {
      const std::string field = string_or(fields, name, "", where);
      const auto known = std::find_if(std::begin(kFields), std::end(kFields),
                                      [&, &name = field](const auto& f) { return name == f.first; });
      if (known == std::end(kFields) || !value.is_number_integer()) {
        fail({.code = ErrorCode::kUnsupported,
              .what = "a layer has a setting of its own that is not supported",
              .where = at,
              .got = fmt::format("{} = {}", name, brief(value))});
      }
      config.layers[static_cast<size_t>(i)].*(known->second) = size_of(value.get<int64_t>(), at);
    }
  }
}

// The last layers may attend to the keys and values of the last layer of their kind before them.
void share_keys(ModelConfig& config, const Json& layers, const std::vector<std::string>& kinds, ConfigReader& reader) {
  const Json* shared = find(layers, "shared_keys");
  if (!shared) return;
  const std::string where = reader.family_where() + ": layers.shared_keys";
  const int64_t count = reader.integer(require(*shared, "layers", where));
  const bool twice = reader.boolean(require(*shared, "double_ffn", where));
  const int64_t first = config.layer_count() - count;
  for (int64_t i = std::max<int64_t>(first, 0); i < config.layer_count(); ++i) {
    int64_t of = first - 1;
    while (of >= 0 && kinds[static_cast<size_t>(of)] != kinds[static_cast<size_t>(i)]) --of;
    if (of < 0) {
      fail({.code = ErrorCode::kFormat,
            .what = "a layer shares keys and values, but none of its kind comes before",
            .where = reader.where(),
            .got = std::to_string(i)});
    }
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.keys_of = static_cast<int>(of);
    if (twice) layer.ffn = 2 * (layer.ffn > 0 ? layer.ffn : config.ffn);
  }
}

}  // namespace

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
    rope_names.push_back(item.key);
    config.ropes.push_back(read_rope(item.key, item.value, config.max_context, reader));
  }
  if (const Json* parameters = reader.key("rope_parameters")) {
    for (const auto& item : parameters->items()) {
      const bool named = std::find(rope_names.begin(), rope_names.end(), item.key) != rope_names.end();
      if (item.value.is_object() && !named) {
        fail({.code = ErrorCode::kUnsupported,
              .what = "a rope of the configuration is unknown to the family",
              .where = reader.where() + ": rope_parameters",
              .expected = fmt::format("{}", fmt::join(rope_names, " or ")),
              .got = item.key});
      }
    }
  }
  std::vector<std::pair<std::string, LayerConfig>> known;
  for (const auto& item : kinds.items()) {
    const std::string where = family.file + ": layers.kinds." + item.key;
    int64_t window = reader.integer(require(item.value, "window", where));
    if (config.max_context > 0 && window >= config.max_context) window = 0;  // it covers everything
    const std::string rope = require_string(item.value, "rope", where);
    const auto it = std::find(rope_names.begin(), rope_names.end(), rope);
    if (it == rope_names.end() || window < 0 || window > (1 << 28)) {
      fail({.code = ErrorCode::kFormat,
            .what = "a kind of layer cannot be",
            .where = where,
            .expected = "a window and a known rope",
            .got = brief(item.value)});
    }
    LayerConfig heads;
    read_heads(heads, item.value, reader, where);
    known.push_back(
        {item.key,
         {static_cast<int>(window), static_cast<int>(it - rope_names.begin()), false,
          mixer_of(item.value, Mixer::kAttention, where), heads.head_dim, heads.kv_heads, 0, heads.values_are_keys}});
  }
  const std::vector<std::string> chosen = layer_kinds(layers, static_cast<int>(count), reader);
  for (const std::string& kind : chosen) {
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
  mark_layers(config, layers, rope_names, reader);
  read_own_sizes(config, layers, reader);
  share_keys(config, layers, chosen, reader);
}

}  // namespace doppler
