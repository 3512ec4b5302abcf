#include "convert/family_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

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
                                     "partial_rotary_factor"};

RopeScaling scaling_named(const std::string& name, const std::string& where) {
  if (name == "default") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  fail({ErrorCode::kUnsupported, "this rope scaling is not supported", where, "default, linear, llama3 or yarn", name,
        ""});
}

// `parameters` is one rope's object: what transformers 4 calls rope_scaling, or transformers 5 rope_parameters.
void read_scaling(RopeConfig& rope, const Json& parameters, const std::string& where) {
  for (const auto& item : parameters.items()) {
    const bool known = std::find(std::begin(kRopeKeys), std::end(kRopeKeys), item.key()) != std::end(kRopeKeys);
    if (!known && !item.value().is_null()) {
      fail({ErrorCode::kUnsupported, "a rope setting is not supported", where, "",
            fmt::format("{} = {}", item.key(), brief(item.value())), ""});
    }
  }
  if (number_or(parameters, "partial_rotary_factor", 1, where) != 1) {
    fail({ErrorCode::kUnsupported, "rotary embeddings of a part of the head are not supported", where,
          "partial_rotary_factor 1", brief(parameters), ""});
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
      fail({ErrorCode::kFormat, "rope settings must be an object", where, "", brief(*parameters), ""});
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
      fail({ErrorCode::kFormat, "the layer types do not cover every layer", at, std::to_string(count),
            types->is_array() ? std::to_string(types->size()) : brief(*types), ""});
    }
    for (const Json& type : *types) kinds.push_back(type.is_string() ? type.get<std::string>() : brief(type));
    return kinds;
  }
  if (period < 1 || period > 4096) {
    fail({ErrorCode::kFormat, "the layer pattern is out of range", reader.where(), "1 to 4096", std::to_string(period),
          ""});
  }
  for (int i = 0; i < count; ++i) kinds.push_back((i + 1) % period == 0 ? last : rest);
  return kinds;
}

}  // namespace

void read_layers(ModelConfig& config, const Family& family, ConfigReader& reader) {
  const Json& layers = require_object(family.json, "layers", family.file);
  const Json& ropes = require_object(family.json, "ropes", family.file);
  const Json& kinds = require_object(layers, "kinds", family.file + ": layers");
  const int64_t count = reader.integer(require(layers, "count", family.file + ": layers"));
  if (count < 1 || count > 4096) {
    fail({ErrorCode::kFormat, "the number of layers is out of range", reader.where(), "1 to 4096",
          std::to_string(count), ""});
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
        fail({ErrorCode::kUnsupported, "a rope of the configuration is unknown to the family",
              reader.where() + ": rope_parameters", fmt::format("{}", fmt::join(rope_names, " or ")), item.key(), ""});
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
      fail({ErrorCode::kFormat, "a kind of layer cannot be", where, "a window and a known rope", brief(item.value()),
            ""});
    }
    known.push_back({item.key(), {static_cast<int>(window), static_cast<int>(it - rope_names.begin())}});
  }
  for (const std::string& kind : layer_kinds(layers, static_cast<int>(count), reader)) {
    const auto it = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == kind; });
    if (it == known.end()) {
      std::vector<std::string> names;
      for (const auto& k : known) names.push_back(k.first);
      fail({ErrorCode::kUnsupported, "this kind of layer is not supported", reader.where(),
            fmt::format("{}", fmt::join(names, " or ")), kind, ""});
    }
    config.layers.push_back(it->second);
  }
}

}  // namespace doppler
