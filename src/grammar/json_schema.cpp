// From a JSON schema to a grammar whose every text is valid for it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "grammar/grammar.h"
#include "grammar/grammar_builder.h"
#include "grammar/json_text.h"
#include "grammar/schema_merge.h"
#include "grammar/string_pattern.h"

namespace doppler {
namespace {

constexpr size_t kMostSchemaBytes = 1 << 20;
constexpr int kDeepestSchema = 128;

class SchemaReader {
 public:
  SchemaReader(const Json& root, const std::string& where, Expressions& expressions)
      : merger_(root, where), e_(expressions), text_(expressions) {}

  Expression read(const Json& schema, const std::string& path, int depth = 0) {
    if (depth > kDeepestSchema) merger_.refuse(path, "the schema is nested too deep");
    // A reference alone, or wrapped once as some generators do it, is a rule of that name: this is what ends recursion.
    const Json* alone = reference_alone(schema);
    std::string name = alone && alone->is_string() ? alone->text() : "";
    const Json& target = alone ? merger_.target(*alone, path + "/$ref") : schema;
    const Json flat = merger_.flat(target, path);
    const bool joined = !alone && schema.is_object() && (schema.contains("$ref") || schema.contains("allOf"));
    if (joined) name = flat.dump();
    if (name.empty()) return read_flat(flat, path, depth);
    const auto known = rules_.find(name);
    if (known != rules_.end()) return known->second;
    const Rule rule = e_.declare(alone ? name : "#" + path);
    const Expression call = rules_[name] = e_.call(rule);
    e_.define(rule, read_flat(flat, alone ? name.substr(1) : path, depth));
    return call;
  }

 private:
  static const Json* reference_alone(const Json& schema) {
    if (!schema.is_object()) return nullptr;
    const Json* found = nullptr;
    for (const auto& [key, value] : schema.items()) {
      if (key == "title" || key == "description" || key == "default" || key == "$defs" || key == "$schema") continue;
      if (found) return nullptr;
      found = key == "$ref"                                             ? &value
              : key == "allOf" && value.is_array() && value.size() == 1 ? reference_alone(value[0])
                                                                        : nullptr;
      if (!found) return nullptr;
    }
    return found;
  }

  Expression read_flat(const Json& schema, const std::string& path, int depth) {
    if (schema.is_boolean()) return schema == Json(true) ? text_.value() : Expressions::kNever;
    for (const char* key : {"anyOf", "oneOf"}) {
      if (schema.contains(key)) return read_choice(schema, key, path, depth);
    }
    if (schema.contains("enum") || schema.contains("const")) return read_constants(schema, path);
    std::vector<Expression> parts;
    for (const std::string& type : types(schema, path)) {
      if (type == "object") {
        parts.push_back(read_object(schema, path, depth));
      } else if (type == "array") {
        parts.push_back(read_array(schema, path, depth));
      } else if (type == "string") {
        parts.push_back(read_string(schema, path));
      } else if (type == "number" || type == "integer") {
        parts.push_back(read_number(schema, type == "integer", path));
      } else if (type == "boolean") {
        parts.push_back(e_.any_of({e_.text("true"), e_.text("false")}));
      } else if (type == "null") {
        parts.push_back(e_.text("null"));
      } else {
        merger_.wrong(path + "/type", "object, array, string, number, integer, boolean or null", Json(type));
      }
    }
    return e_.any_of(std::move(parts));
  }

  // Without a type, the types that the other keywords speak of; without those, every one.
  std::vector<std::string> types(const Json& schema, const std::string& path) {
    std::vector<std::string> list;
    if (schema.contains("type")) {
      for (const Json& type : types_of(schema)) {
        if (!type.is_string()) merger_.wrong(path + "/type", "a name or a list of names", type);
        list.push_back(type.text());
      }
      return list;
    }
    static const std::pair<const char*, std::vector<const char*>> kKeywords[] = {
        {"object", {"properties", "required", "additionalProperties", "patternProperties"}},
        {"array", {"items", "prefixItems", "minItems", "maxItems"}},
        {"string", {"minLength", "maxLength", "pattern", "format"}},
        {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
    for (const auto& [type, keywords] : kKeywords) {
      if (std::any_of(keywords.begin(), keywords.end(), [&](const char* key) { return schema.contains(key); })) {
        list.push_back(type);
      }
    }
    if (list.empty()) {
      for (const Json& type : types_of(schema)) list.push_back(type.text());
    }
    return list;
  }

  Expression read_choice(Json base, const char* key, const std::string& path, int depth) {
    const Json branches = base[key];
    base.erase(key);
    if (!branches.is_array() || branches.empty()) merger_.wrong(path + "/" + key, "a list of schemas", branches);
    if (std::string_view(key) == "oneOf") {
      std::vector<Json> flats;
      for (size_t i = 0; i < branches.size(); ++i)
        flats.push_back(merger_.flat(branches[i], fmt::format("{}/oneOf/{}", path, i)));
      for (size_t i = 0; i < flats.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (merger_.disjoint(flats[j], flats[i], path)) continue;
          merger_.refuse(path + "/oneOf",
                         fmt::format("the keyword 'oneOf' is supported only where it is plain that no value fits two "
                                     "of its schemas, and it is not for {} and {}",
                                     j, i),
                         "Use anyOf, or a property that both require with different constants");
        }
      }
    }
    std::vector<Expression> parts;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = fmt::format("{}/{}/{}", path, key, i);
      if (base.empty()) {
        parts.push_back(read(branches[i], place, depth + 1));
      } else {
        Json both = Json::object();
        both["allOf"] = Json::array({base, branches[i]});
        parts.push_back(read(both, place, depth + 1));
      }
    }
    return e_.any_of(std::move(parts));
  }

  Expression read_constants(const Json& schema, const std::string& path) {
    for (const auto& [key, value] : schema.items()) {
      if (key != "type" && key != "enum" && key != "const") {
        merger_.refuse(path + "/" + key, fmt::format("the keyword '{}' is not supported beside 'enum' or 'const'", key),
                       "List only the values that it allows");
      }
    }
    Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
    if (!values.is_array()) merger_.wrong(path + "/enum", "a list", values);
    const bool typed = schema.contains("type");
    const std::vector<std::string> allowed = types(schema, path);
    std::vector<Expression> parts;
    for (const Json& value : values) {
      if (schema.contains("const") && !(value == schema["const"])) continue;
      const auto is = [&](const std::string& type) {
        const double number = value.is_number() ? value.get<double>() : 0.5;
        return type == "object"    ? value.is_object()
               : type == "array"   ? value.is_array()
               : type == "string"  ? value.is_string()
               : type == "number"  ? value.is_number()
               : type == "integer" ? value.is_number() && number == std::floor(number)
               : type == "boolean" ? value.is_boolean()
                                   : value.is_null();
      };
      if (!typed || std::any_of(allowed.begin(), allowed.end(), is)) parts.push_back(text_.literal(value));
    }
    return e_.any_of(std::move(parts));
  }

  uint32_t count(const Json& schema, const char* key, uint32_t otherwise, const std::string& path) {
    const Json* value = schema.find(key);
    if (!value) return otherwise;
    if (!value->is_number() || value->get<double>() < 0 || value->get<double>() != std::floor(value->get<double>())) {
      merger_.wrong(path + "/" + key, "a whole number, 0 or more", *value);
    }
    // Above this nobody can tell the difference: an answer is shorter.
    return static_cast<uint32_t>(std::min(value->get<double>(), 1e9));
  }

  Expression read_string(const Json& schema, const std::string& path) {
    const uint32_t least = count(schema, "minLength", 0, path), most = count(schema, "maxLength", kForever, path);
    const Json *pattern = schema.find("pattern"), *format = schema.find("format");
    if (least > most) return Expressions::kNever;
    if (!pattern && !format) return text_.string(least, most);
    if (pattern && format) merger_.refuse(path + "/format", "the keyword 'format' is not supported beside 'pattern'");
    const char* key = pattern ? "pattern" : "format";
    const Json& value = pattern ? *pattern : *format;
    if (!value.is_string()) merger_.wrong(path + "/" + key, "a string", value);
    const char* of_format = pattern ? value.text().c_str() : pattern_of_format(value.text());
    if (!of_format) {
      merger_.refuse(path + "/format", fmt::format("the format '{}' is not supported", value.text()), "Use a pattern");
    }
    const StringPattern read = read_string_pattern(pattern ? std::string_view(value.text()) : of_format, text_, e_,
                                                   merger_.where() + ": #" + path + "/" + key);
    if (read.least >= least && (most == kForever || read.most <= most)) return text_.quoted(read.content);
    if (read.unit != Expressions::kNever) {
      const uint64_t high = std::min<uint64_t>(read.most, most);
      return text_.quoted(e_.repeat(read.unit,
                                    std::max(least, static_cast<uint32_t>(std::min<uint64_t>(read.least, kForever))),
                                    high >= kForever ? kForever : static_cast<uint32_t>(high)));
    }
    merger_.refuse(path + (schema.contains("maxLength") ? "/maxLength" : "/minLength"),
                   fmt::format("a bound of the length is not supported beside this '{}'", key),
                   "Say the length in the pattern");
  }

  std::optional<JsonText::Bound> bound(const Json& schema, const char* inclusive, const char* exclusive, bool larger,
                                       const std::string& path) {
    std::optional<JsonText::Bound> result;
    for (const char* key : {inclusive, exclusive}) {
      const Json* value = schema.find(key);
      if (!value) continue;
      if (!value->is_number()) merger_.wrong(path + "/" + key, "a number", *value);
      const double number = value->get<double>();
      const bool tighter = !result || (larger ? number >= result->value : number <= result->value);
      if (tighter) result = {number, key == exclusive};
    }
    return result;
  }

  Expression read_number(const Json& schema, bool integer, const std::string& path) {
    const auto least = bound(schema, "minimum", "exclusiveMinimum", true, path);
    const auto most = bound(schema, "maximum", "exclusiveMaximum", false, path);
    if (const Json* multiple = schema.find("multipleOf")) {
      if (!(*multiple == Json(1))) {
        merger_.refuse(path + "/multipleOf", "the keyword 'multipleOf' is supported with 1 only", "Leave it out");
      }
      integer = true;
    }
    if (!integer) return least || most ? text_.number(least, most, merger_.where() + ": #" + path) : text_.number();
    int64_t low = -JsonText::kLargest, high = JsonText::kLargest;
    constexpr double kFar = 1e15;
    if (least) {
      const double value = std::ceil(least->value) + (least->exclusive && least->value == std::ceil(least->value));
      low = value >= kFar ? JsonText::kLargest + 1 : std::max(low, static_cast<int64_t>(std::max(value, -kFar)));
    }
    if (most) {
      const double value = std::floor(most->value) - (most->exclusive && most->value == std::floor(most->value));
      high = value <= -kFar ? -JsonText::kLargest - 1 : std::min(high, static_cast<int64_t>(std::min(value, kFar)));
    }
    return text_.integer(low, high);
  }

  Expression read_array(const Json& schema, const std::string& path, int depth) {
    const uint32_t least = count(schema, "minItems", 0, path), most = count(schema, "maxItems", kForever, path);
    const Json *prefix = schema.find("prefixItems"), *items = schema.find("items");
    if (items && items->is_array()) {
      merger_.refuse(path + "/items", "a list of schemas in 'items' is not supported", "Use prefixItems");
    }
    if (prefix && !prefix->is_array()) merger_.wrong(path + "/prefixItems", "a list of schemas", *prefix);
    const size_t fixed = prefix ? prefix->size() : 0;
    if (least > most) return Expressions::kNever;
    // Where a list of the first items is given and nothing else, no more come than must.
    Expression item = text_.value();
    uint32_t longest = most;
    if (items) {
      item = e_.shared(read(*items, path + "/items", depth + 1), "#" + path + "/items");
    } else if (prefix) {
      longest = std::min<uint32_t>(most, std::max<uint32_t>(least, static_cast<uint32_t>(fixed)));
    }
    const auto part = [&](size_t i) {
      return read((*prefix)[i], fmt::format("{}/prefixItems/{}", path, i), depth + 1);
    };
    // From the back: what follows the first i items.
    const auto over = static_cast<uint32_t>(fixed);
    Expression rest = Expressions::kEmpty;
    if (fixed == 0) {
      if (longest == 0) return text_.bracketed('[', Expressions::kNever, true, ']');
      rest = e_.repeat(text_.separated(item), least > 0 ? least - 1 : 0, longest == kForever ? kForever : longest - 1);
      return text_.bracketed('[', e_.sequence({item, rest}), least == 0, ']');
    }
    if (longest > over) {
      rest = e_.repeat(text_.separated(item), least > over ? least - over : 0,
                       longest == kForever ? kForever : longest - over);
    }
    for (size_t i = fixed; i-- > 1;) {
      const Expression more = i < longest ? e_.sequence({text_.separated(part(i)), rest}) : Expressions::kNever;
      rest = i < least ? more : e_.optional(more);
    }
    return text_.bracketed('[', longest > 0 ? e_.sequence({part(0), rest}) : Expressions::kNever, least == 0, ']');
  }

  struct Member {
    Expression text;
    bool required;
  };

  // Members in the order of the schema, those that are not required left out at will, then further ones.
  Expression read_object(const Json& schema, const std::string& path, int depth) {
    const Json none = Json::object();
    const Json *properties = schema.find("properties"), *additional = schema.find("additionalProperties");
    const Json* patterns = schema.find("patternProperties");
    if (properties && !properties->is_object()) merger_.wrong(path + "/properties", "an object", *properties);
    if (!properties) properties = &none;
    std::set<std::string> required;
    std::vector<std::string> names;
    for (const auto& [key, value] : properties->items()) names.push_back(key);
    if (const Json* list = schema.find("required")) {
      if (!list->is_array()) merger_.wrong(path + "/required", "a list of names", *list);
      for (const Json& name : *list) {
        if (!name.is_string()) merger_.wrong(path + "/required", "a list of names", *list);
        if (required.insert(name.text()).second && !properties->contains(name.text())) names.push_back(name.text());
      }
    }
    std::vector<Member> members;
    for (const std::string& name : names) {
      const Json* own = properties->find(name);
      if (!own && patterns) {
        merger_.refuse(path + "/required",
                       fmt::format("'{}' is required, but only patternProperties may describe it", name));
      }
      const std::string place = path + (own ? "/properties/" + name : "/additionalProperties");
      const Expression value = own          ? read(*own, place, depth + 1)
                               : additional ? read(*additional, place, depth + 1)
                                            : text_.value();
      const bool needed = required.count(name) > 0;
      if (value == Expressions::kNever && !needed) continue;
      members.push_back({e_.sequence({text_.literal(name), e_.text(":"), text_.space(), value}), needed});
    }
    Expression further = Expressions::kNever;
    if (patterns) {
      further = read_pattern_member(*patterns, names, path, depth);
    } else if (additional ? *additional != Json(false) : properties->empty() && !schema.contains("required")) {
      if (names.empty() && (!additional || *additional == Json(true))) return text_.object();
      const Expression value =
          additional ? read(*additional, path + "/additionalProperties", depth + 1) : text_.value();
      further = e_.sequence({text_.string_but(names), e_.text(":"), text_.space(), value});
    }
    return text_.bracketed('{', join(members, further, path), required.empty(), '}');
  }

  // The members with commas between, at least one.
  Expression join(std::vector<Member>& members, Expression further, const std::string& path) {
    const auto first_required =
        std::find_if(members.begin(), members.end(), [](const Member& member) { return member.required; });
    const size_t open = static_cast<size_t>(first_required - members.begin());  // the first may be any up to this one
    further = e_.shared(further, "#" + path);
    Expression after = e_.repeat(text_.separated(further), 0, kForever);  // behind the last of the members
    if (further == Expressions::kNever) after = Expressions::kEmpty;
    Expression first = open == members.size() ? e_.sequence({further, after}) : Expressions::kNever;
    std::vector<Expression> tail;  // behind member `open`, back to front
    for (size_t i = members.size(); i-- > open + 1;) {
      const Expression member = text_.separated(members[i].text);
      tail.push_back(members[i].required ? member : e_.optional(member));
    }
    std::reverse(tail.begin(), tail.end());
    tail.push_back(after);
    after = e_.sequence(tail);
    for (size_t i = std::min(open + 1, members.size()); i-- > 0;) {
      if (open > 0) {  // each is used as the first and as a later one
        members[i].text = e_.shared(members[i].text, "#" + path);
        after = e_.shared(after, "#" + path);
      }
      const Expression begun = e_.sequence({members[i].text, after});
      first = members[i].required ? begun : e_.any_of({begun, first});
      const Expression later = text_.separated(members[i].text);
      after = e_.sequence({members[i].required ? later : e_.optional(later), after});
    }
    return first;
  }

  Expression read_pattern_member(const Json& patterns, const std::vector<std::string>& names, const std::string& path,
                                 int depth) {
    const std::string place = path + "/patternProperties";
    if (!patterns.is_object()) merger_.wrong(place, "an object", patterns);
    if (patterns.size() != 1 || !names.empty()) {
      merger_.refuse(place, "the keyword 'patternProperties' is supported with one pattern and without 'properties'",
                     "Use additionalProperties");
    }
    for (const auto& [pattern, schema] : patterns.items()) {
      const StringPattern key = read_string_pattern(pattern, text_, e_, merger_.where() + ": #" + place);
      return e_.sequence({text_.quoted(key.content), e_.text(":"), text_.space(), read(schema, place, depth + 1)});
    }
    return Expressions::kNever;
  }

  SchemaMerger merger_;
  Expressions& e_;
  JsonText text_;
  std::map<std::string, Expression> rules_;  // by reference, or by the text of what was merged
};

}  // namespace

Expression read_json_schema(std::string_view text, const std::string& where, Expressions& expressions) {
  if (text.size() > kMostSchemaBytes) {
    fail({.code = ErrorCode::kUsage,
          .what = "the JSON schema is too long",
          .where = where,
          .expected = fmt::format("at most {} bytes", kMostSchemaBytes),
          .got = std::to_string(text.size())});
  }
  const Json schema = parse_json(text, where);
  const Rule root = expressions.declare("#");
  expressions.define(root, SchemaReader(schema, where, expressions).read(schema, ""));
  return expressions.call(root);
}

std::shared_ptr<const TokenGrammar> grammar_from_json_schema(std::string_view text, const std::string& where,
                                                             std::shared_ptr<const TokenTrie> trie) {
  GrammarBuilder builder(where, std::move(trie));
  return builder.finish(builder.json_schema(text, where));
}

std::shared_ptr<const TokenGrammar> grammar_of_json_object(std::shared_ptr<const TokenTrie> trie) {
  GrammarBuilder builder("a JSON object", std::move(trie));
  return builder.finish(builder.json_object());
}

}  // namespace doppler
