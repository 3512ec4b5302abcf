#include "base/json.h"

#include "base/error.h"

namespace doppler {
namespace {

constexpr size_t kDeepest = 256;

// Builds the document through nlohmann's own DOM parser, but keeps the fault's place instead of throwing it.
class PlaceKeeper : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  explicit PlaceKeeper(Json& document) : json_sax_dom_parser(document, /*allow_exceptions=*/false) {}

  bool start_object(std::size_t count) { return deeper() && json_sax_dom_parser::start_object(count); }
  bool start_array(std::size_t count) { return deeper() && json_sax_dom_parser::start_array(count); }
  bool end_object() { return --depth_, json_sax_dom_parser::end_object(); }
  bool end_array() { return --depth_, json_sax_dom_parser::end_array(); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& token, const Exception&) {
    fault_at = position;
    last_token = token;
    return false;
  }

  std::size_t fault_at = 0;
  std::string last_token;
  bool too_deep = false;

 private:
  bool deeper() {
    too_deep = ++depth_ > kDeepest;
    return !too_deep;
  }
  std::size_t depth_ = 0;
};

std::string line_and_column(std::string_view text, std::size_t at) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i + 1 < at && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

[[noreturn]] void wrong_type(const Json& value, std::string_view key, const std::string& where, const char* expected) {
  fail({.code = ErrorCode::kFormat,
        .what = "a JSON value has the wrong type",
        .where = where + ": " + std::string(key),
        .expected = expected,
        .got = brief(value)});
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  Json root;
  PlaceKeeper keeper(root);
  if (!Json::sax_parse(text.begin(), text.end(), &keeper)) {
    if (keeper.too_deep) {
      fail({.code = ErrorCode::kFormat,
            .what = "the JSON is nested too deeply",
            .where = where,
            .expected = "at most " + std::to_string(kDeepest) + " levels"});
    }
    fail({.code = ErrorCode::kFormat,
          .what = "this is not valid JSON",
          .where = where,
          .got = "a fault at " + line_and_column(text, keeper.fault_at) +
                 (keeper.last_token.empty() ? "" : ", near '" + keeper.last_token.substr(0, 40) + "'"),
          .todo = "The file may be truncated or damaged; fetch or write it again"});
  }
  return root;
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const Json& require(const Json& object, std::string_view key, const std::string& where) {
  if (!object.is_object())
    fail({.code = ErrorCode::kFormat,
          .what = "a JSON object is needed here",
          .where = where,
          .expected = "an object",
          .got = brief(object)});
  const auto it = object.find(std::string(key));
  if (it == object.end())
    fail({.code = ErrorCode::kFormat,
          .what = "a key is missing",
          .where = where,
          .expected = "'" + std::string(key) + "'"});
  return *it;
}

int64_t require_int(const Json& object, std::string_view key, const std::string& where) {
  const Json& value = require(object, key, where);
  if (!value.is_number_integer()) wrong_type(value, key, where, "a whole number");
  return value.get<int64_t>();
}

double require_number(const Json& object, std::string_view key, const std::string& where) {
  const Json& value = require(object, key, where);
  if (!value.is_number()) wrong_type(value, key, where, "a number");
  return value.get<double>();
}

std::string require_string(const Json& object, std::string_view key, const std::string& where) {
  const Json& value = require(object, key, where);
  if (!value.is_string()) wrong_type(value, key, where, "a string");
  return value.get<std::string>();
}

const Json& require_object(const Json& object, std::string_view key, const std::string& where) {
  const Json& value = require(object, key, where);
  if (!value.is_object()) wrong_type(value, key, where, "an object");
  return value;
}

const Json& require_array(const Json& object, std::string_view key, const std::string& where) {
  const Json& value = require(object, key, where);
  if (!value.is_array()) wrong_type(value, key, where, "an array");
  return value;
}

int64_t int_or(const Json& object, std::string_view key, int64_t otherwise, const std::string& where) {
  return find(object, key) ? require_int(object, key, where) : otherwise;
}

double number_or(const Json& object, std::string_view key, double otherwise, const std::string& where) {
  return find(object, key) ? require_number(object, key, where) : otherwise;
}

bool bool_or(const Json& object, std::string_view key, bool otherwise, const std::string& where) {
  const Json* value = find(object, key);
  if (!value) return otherwise;
  if (!value->is_boolean()) wrong_type(*value, key, where, "true or false");
  return value->get<bool>();
}

std::string string_or(const Json& object, std::string_view key, std::string otherwise, const std::string& where) {
  return find(object, key) ? require_string(object, key, where) : std::move(otherwise);
}

std::string brief(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace doppler
