// As much of JSON Schema as the project's own schema uses: type, enum, pattern, required, properties,
// additionalProperties, items, minItems, minimum, maximum, and $ref into $defs.
#pragma once

#include <fmt/format.h>

#include <regex>
#include <string>
#include <vector>

#include "base/json.h"

namespace doppler::testing {

class JsonSchema {
 public:
  explicit JsonSchema(Json schema) : root_(std::move(schema)) {}

  // Every way in which the value breaks the schema, with the place.
  std::vector<std::string> faults(const Json& value) const {
    std::vector<std::string> list;
    check(root_, value, "$", list);
    return list;
  }

 private:
  static bool is(const std::string& type, const Json& v) {
    if (type == "object") return v.is_object();
    if (type == "array") return v.is_array();
    if (type == "string") return v.is_string();
    if (type == "integer") return v.is_number_integer();
    if (type == "number") return v.is_number();
    if (type == "boolean") return v.is_boolean();
    return type == "null" && v.is_null();
  }

  void check(const Json& schema, const Json& v, const std::string& at, std::vector<std::string>& faults) const {
    if (schema.contains("$ref")) {
      const auto ref = schema["$ref"].get<std::string>();  // "#/$defs/name"
      return check(root_["$defs"][ref.substr(ref.rfind('/') + 1)], v, at, faults);
    }
    if (schema.contains("type")) {
      const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
      bool any = false;
      for (const Json& type : types) any = any || is(type.get<std::string>(), v);
      if (!any) return faults.push_back(fmt::format("{} is no {}", at, types.dump()));
    }
    if (schema.contains("enum") && std::find(schema["enum"].begin(), schema["enum"].end(), v) == schema["enum"].end()) {
      faults.push_back(fmt::format("{} is not one of {}", at, schema["enum"].dump()));
    }
    if (schema.contains("pattern") && v.is_string() &&
        !std::regex_search(v.get<std::string>(), std::regex(schema["pattern"].get<std::string>()))) {
      faults.push_back(at + " does not match its pattern");
    }
    if (v.is_number()) {
      const double n = v.get<double>();
      if (schema.contains("minimum") && n < schema["minimum"].get<double>()) faults.push_back(at + " is too small");
      if (schema.contains("maximum") && n > schema["maximum"].get<double>()) faults.push_back(at + " is too large");
    }
    if (v.is_array()) {
      if (schema.contains("minItems") && v.size() < schema["minItems"].get<size_t>())
        faults.push_back(at + " is short");
      for (size_t i = 0; schema.contains("items") && i < v.size(); ++i) {
        check(schema["items"], v[i], fmt::format("{}[{}]", at, i), faults);
      }
    }
    if (!v.is_object()) return;
    for (const Json& key : schema.value("required", Json::array())) {
      if (!v.contains(key.get<std::string>()))
        faults.push_back(fmt::format("{}.{} is missing", at, key.get<std::string>()));
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, inner] : v.items()) {
      if (properties.contains(key)) {
        check(properties[key], inner, at + "." + key, faults);
      } else if (schema.contains("additionalProperties") && schema["additionalProperties"] == false) {
        faults.push_back(at + "." + key + " is not in the schema");
      }
    }
  }

  Json root_;
};

}  // namespace doppler::testing
