#include "import/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"

namespace doppler {

void ConfigReader::wrong(const Json& expression, const Json& got, const char* expected) const {
  std::string place = where_;
  if (const Json* key = find(expression, "key"))
    place += ": " + (key->is_string() ? key->get<std::string>() : brief(*key));
  fail(
      {ErrorCode::kFormat, "a value of the model's configuration has the wrong type", place, expected, brief(got), ""});
}

const Json* ConfigReader::key(const std::string& name) {
  used_.insert(name);
  const Json* value = find(root_, name);
  // An explicit null in the text part is an answer; only an absent key is looked up around it.
  return value || root_.contains(name) ? value : find(outer_, name);
}

Json ConfigReader::from_key(const Json& expression) {
  const Json& names = require(expression, "key", family_where_);
  const Json list = names.is_array() ? names : Json::array({names});
  Json found;
  bool explicit_null = false;
  for (const Json& name : list) {
    if (!name.is_string())
      fail({.code = ErrorCode::kFormat, .what = "a key must be a string", .where = family_where_, .got = brief(name)});
    const std::string text = name.get<std::string>();
    const Json* value = key(text);
    if (value && found.is_null()) found = *value;
    explicit_null = explicit_null || (!value && root_.contains(text));
  }
  if (found.is_null()) {
    const char* otherwise = explicit_null && find(expression, "null") ? "null" : "default";
    if (!expression.contains(otherwise)) {
      fail({.code = ErrorCode::kFormat,
            .what = "the model's configuration lacks a key",
            .where = where_,
            .expected = brief(names)});
    }
    found = value(expression[otherwise]);
  }
  if (const Json* values = find(expression, "values")) {
    const Json* mapped = found.is_string() ? find(*values, found.get<std::string>()) : nullptr;
    if (!mapped) {
      std::vector<std::string> known;
      for (const auto& item : values->items()) known.push_back(item.key);
      fail({.code = ErrorCode::kUnsupported,
            .what = "the model's configuration asks for something this family cannot do",
            .where = where_ + ": " + brief(names),
            .expected = fmt::format("{}", fmt::join(known, " or ")),
            .got = brief(found)});
    }
    return *mapped;
  }
  return found;
}

std::pair<double, double> ConfigReader::pair(const Json& list) {
  if (!list.is_array() || list.size() != 2) {
    fail({.code = ErrorCode::kFormat,
          .what = "two operands are needed",
          .where = family_where_,
          .expected = "[a, b]",
          .got = brief(list)});
  }
  return {number(list[0]), number(list[1])};
}

Json ConfigReader::value(const Json& expression) {
  if (!expression.is_object()) return expression;
  if (find(expression, "key")) return from_key(expression);
  if (const Json* field = find(expression, "field")) {
    const auto it = field->is_string() ? fields_.find(field->get<std::string>()) : fields_.end();
    if (it == fields_.end()) {
      fail({.code = ErrorCode::kFormat,
            .what = "an expression names a field that is not known yet",
            .where = family_where_,
            .got = brief(*field)});
    }
    return it->second;
  }
  if (const Json* inner = find(expression, "sqrt")) return std::sqrt(number(*inner));
  if (const Json* inner = find(expression, "rsqrt")) return 1 / std::sqrt(number(*inner));
  if (const Json* list = find(expression, "multiply")) {
    const auto [a, b] = pair(*list);
    return a * b;
  }
  if (const Json* list = find(expression, "divide")) {
    const auto [a, b] = pair(*list);
    return a / b;
  }
  fail({.code = ErrorCode::kFormat,
        .what = "an unknown expression",
        .where = family_where_,
        .expected = "a literal, key, field, sqrt, rsqrt, multiply or divide",
        .got = brief(expression)});
}

double ConfigReader::number(const Json& expression) {
  const Json got = value(expression);
  if (!got.is_number()) wrong(expression, got, "a number");
  const double x = got.get<double>();
  if (!std::isfinite(x)) wrong(expression, got, "a finite number");
  return x;
}

int64_t ConfigReader::integer(const Json& expression) {
  const double x = number(expression);
  if (x != std::floor(x) || std::abs(x) > 0x1p52) wrong(expression, x, "a whole number");
  return static_cast<int64_t>(x);
}

bool ConfigReader::boolean(const Json& expression) {
  const Json got = value(expression);
  if (!got.is_boolean()) wrong(expression, got, "true or false");
  return got.get<bool>();
}

std::string ConfigReader::string(const Json& expression) {
  const Json got = value(expression);
  if (!got.is_string()) wrong(expression, got, "a string");
  return got.get<std::string>();
}

}  // namespace doppler
