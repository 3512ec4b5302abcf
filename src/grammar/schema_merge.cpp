#include "grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace doppler {
namespace {

constexpr int kDeepestReference = 64;
constexpr size_t kMostWork = 300'000;  // keywords copied or compared
constexpr size_t kCompared = 16;       // values that are only compared and count as one keyword

// Say nothing about what is valid.
constexpr std::string_view kAnnotations[] = {"title",
                                             "description",
                                             "default",
                                             "examples",
                                             "example",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "$schema",
                                             "$id",
                                             "id",
                                             "$comment",
                                             "$anchor",
                                             "$defs",
                                             "definitions",
                                             "contentMediaType",
                                             "contentSchema",
                                             "contentEncoding",
                                             "$vocabulary",
                                             "discriminator"};
constexpr std::string_view kSupported[] = {"type",
                                           "enum",
                                           "const",
                                           "properties",
                                           "required",
                                           "additionalProperties",
                                           "items",
                                           "prefixItems",
                                           "minItems",
                                           "maxItems",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "anyOf",
                                           "oneOf",
                                           "allOf",
                                           "$ref",
                                           "nullable",
                                           "uniqueItems",
                                           "patternProperties"};

template <class List>
bool among(std::string_view word, const List& list) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

bool is_annotation(std::string_view key) { return key.starts_with("x-") || among(key, kAnnotations); }

// Equal, with the order of keys left out.
bool same(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& [key, value] : a.items()) {
      const Json* other = b.find(key);
      if (!other || !same(value, *other)) return false;
    }
    return true;
  }
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  return a == b;
}

// The values that an enum or const names; null if there is neither.
Json constants(const Json& schema) {
  if (const Json* one = schema.find("const")) return Json::array({*one});
  const Json* list = schema.find("enum");
  return list ? *list : Json();
}

}  // namespace

void SchemaMerger::refuse(const std::string& path, const std::string& what, const std::string& todo) const {
  fail({.code = ErrorCode::kUnsupported, .what = what, .where = where_ + ": #" + path, .todo = todo});
}

void SchemaMerger::wrong(const std::string& path, const std::string& expected, const Json& got) const {
  fail({.code = ErrorCode::kUsage,
        .what = "this is not a JSON schema",
        .where = where_ + ": #" + path,
        .expected = expected,
        .got = brief(got)});
}

void SchemaMerger::spend(size_t work) {
  spent_ += work;
  if (spent_ <= kMostWork) return;
  fail({.code = ErrorCode::kUsage,
        .what = "the schema takes too long to compile",
        .where = where_,
        .todo = "Use fewer combinations of allOf, anyOf and references"});
}

const Json& SchemaMerger::target(const Json& reference, const std::string& path) const {
  if (!reference.is_string()) wrong(path, "a string", reference);
  const std::string& text = reference.text();
  if (text != "#" && !text.starts_with("#/")) {
    refuse(path, fmt::format("the reference '{}' leads out of the schema, which is not supported", text),
           "Put what it names under $defs");
  }
  const Json* at = &root_;
  for (size_t begin = 2; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      if (text[i] == '~' && i + 1 < end) {
        key += text[++i] == '1' ? '/' : '~';
      } else if (text[i] == '%') {
        refuse(path, "a reference with % escapes is not supported");
      } else {
        key += text[i];
      }
    }
    if (at->is_array()) {
      const bool number = !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = number ? static_cast<size_t>(std::stoul(key)) : at->size();
      at = index < at->size() ? &(*at)[index] : nullptr;
    } else {
      at = at->find(key);
    }
    if (!at) wrong(path, "a reference to something that is in the schema", reference);
    begin = end + 1;
  }
  return *at;
}

Json SchemaMerger::flat(const Json& schema, const std::string& path, int depth) {
  if (schema.is_boolean()) return schema;
  if (!schema.is_object()) wrong(path, "an object, true or false", schema);
  if (depth > kDeepestReference) refuse(path, "references and allOf are nested too deep, or lead back to themselves");
  spend(schema.size() + 1);
  Json base = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (is_annotation(key)) continue;
    if (!among(key, kSupported)) {
      refuse(path + "/" + key, fmt::format("the keyword '{}' is not supported in a JSON schema", key),
             "Leave it out, or say the same with other keywords");
    }
    if (key == "uniqueItems" && value.is_boolean() && value == Json(false)) continue;
    if (key == "uniqueItems") refuse(path + "/uniqueItems", "the keyword 'uniqueItems' is not supported");
    if (key != "$ref" && key != "allOf" && key != "nullable") base[key] = value;
  }
  if (const Json* nullable = schema.find("nullable"); nullable && *nullable == Json(true) && base.contains("type")) {
    Json types = types_of(base);
    if (!std::any_of(types.begin(), types.end(), [](const Json& type) { return type == Json("null"); })) {
      types.push_back("null");
    }
    base["type"] = types;
  }
  if (const Json* reference = schema.find("$ref")) {
    const Json& named = target(*reference, path + "/$ref");
    base = merge(flat(named, reference->text().substr(1), depth + 1), base, path);
  }
  if (const Json* all = schema.find("allOf")) {
    if (!all->is_array()) wrong(path + "/allOf", "a list of schemas", *all);
    size_t i = 0;
    for (const Json& part : *all) {
      const std::string place = fmt::format("{}/allOf/{}", path, i++);
      base = merge(base, flat(part, place, depth + 1), place);
    }
  }
  return base;
}

Json SchemaMerger::merge(const Json& a, const Json& b, const std::string& path) {
  if (a.is_boolean()) return a == Json(true) ? b : a;
  if (b.is_boolean()) return b == Json(true) ? a : b;
  if (a.empty()) return b;
  if (b.empty()) return a;
  spend(a.size() + b.size());
  Json result = a;
  const bool objects = (a.contains("properties") || a.contains("additionalProperties")) &&
                       (b.contains("properties") || b.contains("additionalProperties"));
  if (objects && (a.contains("patternProperties") || b.contains("patternProperties"))) {
    refuse(path + "/patternProperties", "the keyword 'patternProperties' is not supported in what allOf joins");
  }
  for (const auto& [key, value] : b.items()) {
    if (objects && (key == "properties" || key == "additionalProperties")) continue;
    const Json* mine = a.find(key);
    if (!mine || same(*mine, value)) {
      result[key] = value;
      continue;
    }
    Json merged = merge_key(key, *mine, value, path);
    if ((key == "type" || key == "enum") && merged.empty()) return false;
    if (key == "const") return false;
    result[key] = std::move(merged);
  }
  if (objects) {
    result["properties"] = merge_properties(a, b, path);
    const Json mine = a.value("additionalProperties", true), other = b.value("additionalProperties", true);
    result["additionalProperties"] = merge(flat(mine, path + "/additionalProperties"),
                                           flat(other, path + "/additionalProperties"), path + "/additionalProperties");
    // Where neither says anything, none beyond those that are named come.
    if (!a.contains("additionalProperties") && !b.contains("additionalProperties"))
      result.erase("additionalProperties");
  }
  return result;
}

Json SchemaMerger::merge_properties(const Json& a, const Json& b, const std::string& path) {
  const Json mine = a.value("properties", Json::object()), other = b.value("properties", Json::object());
  if (!mine.is_object()) wrong(path + "/properties", "an object", mine);
  if (!other.is_object()) wrong(path + "/properties", "an object", other);
  spend(mine.size() + other.size());
  Json result = Json::object();
  // A property that one side does not name is that side's additional one.
  const auto beside = [&](const Json& schema, const std::string& key) -> Json {
    const Json* named = schema.find("properties") ? schema.find("properties")->find(key) : nullptr;
    return named ? *named : schema.value("additionalProperties", true);
  };
  const auto put = [&](const std::string& key) {
    const Json left = beside(a, key), right = beside(b, key);
    Json joined;
    if (left == Json(true)) {
      joined = right;
    } else if (right == Json(true)) {
      joined = left;
    } else {
      joined = Json::object();
      joined["allOf"] = Json::array({left, right});
    }
    result[key] = std::move(joined);
  };
  for (const auto& [key, value] : mine.items()) put(key);
  for (const auto& [key, value] : other.items()) {
    if (!mine.contains(key)) put(key);
  }
  return result;
}

Json SchemaMerger::merge_key(const std::string& key, const Json& a, const Json& b, const std::string& path) {
  const auto lists = [&] {
    if (!a.is_array()) wrong(path + "/" + key, "a list", a);
    if (!b.is_array()) wrong(path + "/" + key, "a list", b);
    spend(a.size() * b.size() + 1);
  };
  if (key == "type") {
    Json both = Json::array();
    const Json left = types_of({{"type", a}}), right = types_of({{"type", b}});
    for (const Json& x : left) {
      for (const Json& y : right) {
        if (x == y) both.push_back(x);
        if (x == Json("integer") && y == Json("number")) both.push_back("integer");
        if (x == Json("number") && y == Json("integer")) both.push_back("integer");
      }
    }
    return both;
  }
  if (key == "enum" || key == "required") {
    lists();
    const auto has = [](const Json& list, const Json& value) {
      return std::any_of(list.begin(), list.end(), [&](const Json& each) { return same(each, value); });
    };
    Json result = key == "enum" ? Json::array() : a;
    for (const Json& value : b) {
      if ((key == "enum") == has(a, value)) result.push_back(value);
    }
    return result;
  }
  if (key == "minimum" || key == "exclusiveMinimum" || key == "minLength" || key == "minItems" || key == "maximum" ||
      key == "exclusiveMaximum" || key == "maxLength" || key == "maxItems") {
    if (!a.is_number()) wrong(path + "/" + key, "a number", a);
    if (!b.is_number()) wrong(path + "/" + key, "a number", b);
    const bool larger = key.find("min") == 0 || key.find("Min") != std::string::npos;
    return (a.get<double>() > b.get<double>()) == larger ? a : b;
  }
  if (key == "items") {
    Json joined = Json::object();
    joined["allOf"] = Json::array({a, b});
    return joined;
  }
  if (key == "anyOf") {
    lists();
    spend(8 * a.size() * b.size());  // each is a new schema
    Json result = Json::array();
    for (const Json& x : a) {
      for (const Json& y : b) {
        Json joined = Json::object();
        joined["allOf"] = Json::array({x, y});
        result.push_back(std::move(joined));
      }
    }
    return result;
  }
  if (key == "const") return {};
  refuse(path + "/" + key, fmt::format("two different values of '{}' cannot be joined", key));
}

Json types_of(const Json& schema) {
  const Json* type = schema.find("type");
  if (!type) return Json::array({"object", "array", "string", "number", "boolean", "null"});
  return type->is_array() ? *type : Json::array({*type});
}

bool SchemaMerger::disjoint(const Json& a, const Json& b, const std::string& path, int depth) {
  if (a == Json(false) || b == Json(false)) return true;
  if (a.is_boolean() || b.is_boolean() || depth > 4) return false;
  spend(a.size() + b.size() + 1);
  const Json left = constants(a), right = constants(b);
  if (left.is_array() && right.is_array()) {
    spend(left.size() * right.size() / kCompared);
    return std::none_of(left.begin(), left.end(), [&](const Json& x) {
      return std::any_of(right.begin(), right.end(), [&](const Json& y) { return same(x, y); });
    });
  }
  if (a.contains("type") && b.contains("type")) {
    const Json common = merge_key("type", *a.find("type"), *b.find("type"), path);
    if (common.empty()) return true;
    if (common.size() > 1 || common[0] != Json("object")) return false;
  } else {
    return false;
  }
  const Json required = b.value("required", Json::array());
  spend(required.size() * a.value("required", Json::array()).size() / kCompared);
  for (const Json& key : a.value("required", Json::array())) {
    if (!key.is_string() || std::none_of(required.begin(), required.end(), [&](const Json& k) { return k == key; }))
      continue;
    const Json none = Json::object();
    const Json *x = a.contains("properties") ? a.find("properties")->find(key.text()) : nullptr,
               *y = b.contains("properties") ? b.find("properties")->find(key.text()) : nullptr;
    if (x && y && disjoint(flat(*x, path), flat(*y, path), path, depth + 1)) return true;
  }
  return false;
}

}  // namespace doppler
