#include <algorithm>
#include <numeric>
#include <ostream>

#include "base/error.h"
#include "base/json.h"

namespace doppler {
namespace {

constexpr const char* kKindNames[] = {"null",          "true or false", "a whole number", "a whole number",
                                      "a real number", "a string",      "an array",       "an object"};

[[noreturn]] void wrong_kind(const Json& value, const char* expected) {
  fail({.code = ErrorCode::kFormat,
        .what = "a JSON value has the wrong type",
        .expected = expected,
        .got = brief(value)});
}

[[noreturn]] void wrong_type(const Json& value, std::string_view key, const std::string& where, const char* expected) {
  fail({.code = ErrorCode::kFormat,
        .what = "a JSON value has the wrong type",
        .where = where + ": " + std::string(key),
        .expected = expected,
        .got = brief(value)});
}

}  // namespace

Json::Json(std::string_view text) : Json(std::string(text)) {}
Json::Json(std::string text) : kind_(Kind::kString), text_(new std::string(std::move(text))) {}

Json Json::array(std::initializer_list<Json> list) {
  Json out;
  out.kind_ = Kind::kArray;
  out.elements_ = new Elements{{}, list, {}};
  return out;
}

Json Json::object() {
  Json out;
  out.kind_ = Kind::kObject;
  out.elements_ = new Elements;
  return out;
}

Json::Json(std::initializer_list<Json> list) {
  for (const Json& element : list) {
    if (element.is_array() && element.size() == 2 && element[0].is_string()) continue;
    *this = array(list);
    return;
  }
  *this = object();
  for (const Json& pair : list) (*this)[pair[0].text()] = pair[1];
}

Json::Json(const Json& other) : kind_(other.kind_), integer_(other.integer_) {
  if (kind_ == Kind::kString) text_ = new std::string(*other.text_);
  if (kind_ >= Kind::kArray) elements_ = new Elements(*other.elements_);
}

Json& Json::operator=(Json other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(integer_, other.integer_);
  return *this;
}

Json::~Json() {
  if (kind_ == Kind::kString) delete text_;
  if (kind_ >= Kind::kArray) delete elements_;
}

void Json::need(Kind kind) const {
  if (kind_ != kind) wrong_kind(*this, kKindNames[static_cast<size_t>(kind)]);
}

bool Json::boolean() const {
  need(Kind::kBoolean);
  return integer_ != 0;
}

int64_t Json::integer() const {
  if (kind_ == Kind::kReal) return static_cast<int64_t>(real_);
  if (!is_number_integer()) wrong_kind(*this, "a whole number");
  return integer_;
}

double Json::real() const {
  if (!is_number()) wrong_kind(*this, "a number");
  if (kind_ == Kind::kReal) return real_;
  return kind_ == Kind::kUnsigned ? static_cast<double>(static_cast<uint64_t>(integer_))
                                  : static_cast<double>(integer_);
}

const std::string& Json::text() const {
  need(Kind::kString);
  return *text_;
}

size_t Json::size() const { return kind_ >= Kind::kArray ? elements_->values.size() : kind_ != Kind::kNull; }

const Json* Json::begin() const { return kind_ >= Kind::kArray ? elements_->values.data() : this; }

const Json& Json::operator[](size_t index) const {
  need(Kind::kArray);
  if (index >= size()) {
    fail({.code = ErrorCode::kFormat,
          .what = "a JSON array is too short",
          .expected = "more than " + std::to_string(index) + " elements",
          .got = brief(*this)});
  }
  return elements_->values[index];
}

void Json::push_back(Json element) {
  if (is_null()) *this = array();
  need(Kind::kArray);
  elements_->values.push_back(std::move(element));
}

size_t Json::Elements::place(std::string_view key) const {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), key,
                                   [&](uint32_t place, std::string_view sought) { return keys[place] < sought; });
  if (at != sorted.end() && keys[*at] == key) return *at;
  size_t i = sorted.size();
  while (i < keys.size() && keys[i] != key) ++i;
  return i;
}

// Keys that come one by one are sorted when they are the square root of all: n of them cost n^1.5 steps.
void Json::Elements::sort_keys() {
  const size_t known = sorted.size(), fresh = keys.size() - known;
  if (fresh <= kFew || fresh * fresh < keys.size()) return;
  sorted.resize(keys.size());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(known);
  std::iota(middle, sorted.end(), static_cast<uint32_t>(known));
  const auto by_key = [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; };
  std::sort(middle, sorted.end(), by_key);
  std::inplace_merge(sorted.begin(), middle, sorted.end(), by_key);
}

const Json* Json::find(std::string_view key) const {
  if (kind_ != Kind::kObject) return nullptr;
  const size_t place = elements_->place(key);
  return place < elements_->keys.size() ? &elements_->values[place] : nullptr;
}

Json Json::value(std::string_view key, Json otherwise) const {
  const Json* found = find(key);
  return found ? *found : std::move(otherwise);
}

const Json& Json::operator[](std::string_view key) const { return require(*this, key, "JSON"); }

Json& Json::operator[](std::string_view key) {
  if (is_null()) *this = object();
  need(Kind::kObject);
  if (const Json* found = find(key)) return const_cast<Json&>(*found);
  elements_->keys.emplace_back(key);
  elements_->sort_keys();
  return elements_->values.emplace_back();
}

void Json::erase(std::string_view key) {
  const Json* found = find(key);
  if (!found) return;
  const auto index = found - elements_->values.data();
  elements_->keys.erase(elements_->keys.begin() + index);
  elements_->values.erase(elements_->values.begin() + index);
  elements_->sorted.clear();
  elements_->sort_keys();
}

void Json::update(const Json& other) {
  for (const auto& [key, value] : other.items()) (*this)[key] = value;
}

Json::Items Json::items() const {
  if (is_null()) return {nullptr, nullptr, 0};
  need(Kind::kObject);
  return {elements_->keys.data(), elements_->values.data(), elements_->keys.size()};
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_number_integer() && b.is_number_integer()) return a.kind_ == b.kind_ && a.integer_ == b.integer_;
    return a.real() == b.real();
  }
  if (a.kind_ != b.kind_) return false;
  if (a.is_string()) return *a.text_ == *b.text_;
  if (a.kind_ >= Json::Kind::kArray) {
    return a.elements_->keys == b.elements_->keys && a.elements_->values == b.elements_->values;
  }
  return a.integer_ == b.integer_;  // null or boolean
}

std::ostream& operator<<(std::ostream& out, const Json& value) { return out << value.dump(); }

const Json* find(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

const Json& require(const Json& object, std::string_view key, const std::string& where) {
  if (!object.is_object())
    fail({.code = ErrorCode::kFormat,
          .what = "a JSON object is needed here",
          .where = where,
          .expected = "an object",
          .got = brief(object)});
  const Json* value = object.find(key);
  if (!value)
    fail({.code = ErrorCode::kFormat,
          .what = "a key is missing",
          .where = where,
          .expected = "'" + std::string(key) + "'"});
  return *value;
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
  std::string text = value.dump();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace doppler
