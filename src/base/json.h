// JSON: a value of our own that is cheap to include, and access that names its place, so that a wrong type is an error
// a person can act on. json.cpp alone knows the library that reads and writes the text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace doppler {

// Null, true or false, a whole number, a real number, a string, an array, or an object whose keys keep their order.
//   Json json = {{"name", "tiny"}, {"sizes", {1, 2, 3}}, {"notes", Json::object()}};
// A list whose elements are all pairs that begin with a string is an object, any other list an array.
class Json {
 public:
  // kUnsigned is a whole number above INT64_MAX; every other whole number is a kInteger.
  enum class Kind : uint8_t { kNull, kBoolean, kInteger, kUnsigned, kReal, kString, kArray, kObject };
  struct Item {
    const std::string& key;
    const Json& value;
  };
  class Items;

  Json() = default;
  Json(std::nullptr_t) {}
  template <class T>
  requires std::is_arithmetic_v<T> Json(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::kBoolean;
      integer_ = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::kReal;
      real_ = static_cast<double>(value);
    } else {
      integer_ = static_cast<int64_t>(value);
      kind_ = std::is_unsigned_v<T> && integer_ < 0 ? Kind::kUnsigned : Kind::kInteger;
    }
  }
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(std::string_view text);
  Json(std::string text);
  template <class List>  // a vector, a span, a set
  requires(!std::is_same_v<typename List::value_type, char>) Json(const List& list) : Json(array()) {
    for (const auto& element : list) push_back(Json(element));
  }
  Json(std::initializer_list<Json> list);
  Json(const Json& other);
  Json(Json&& other) noexcept : kind_(other.kind_), integer_(other.integer_) { other.kind_ = Kind::kNull; }
  Json& operator=(Json other) noexcept;
  ~Json();
  static Json array(std::initializer_list<Json> list = {});
  static Json object();

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_boolean() const { return kind_ == Kind::kBoolean; }
  bool is_number() const { return kind_ >= Kind::kInteger && kind_ <= Kind::kReal; }
  bool is_number_integer() const { return kind_ == Kind::kInteger || kind_ == Kind::kUnsigned; }
  bool is_number_unsigned() const { return is_number_integer() && (kind_ == Kind::kUnsigned || integer_ >= 0); }
  bool is_number_float() const { return kind_ == Kind::kReal; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // A number as another type of number is cast; any other difference of type fails.
  template <class T>
  T get() const {
    if constexpr (std::is_same_v<T, bool>) {
      return boolean();
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(real());
    } else if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<T>(integer());
    } else if constexpr (std::is_same_v<T, std::string>) {
      return text();
    } else {  // a vector
      need(Kind::kArray);
      T list;
      list.reserve(size());
      for (const Json& element : *this) list.push_back(element.get<typename T::value_type>());
      return list;
    }
  }
  const std::string& text() const;

  // Of an array its elements, of an object its values; null has none, and any other value is its own only element.
  size_t size() const;
  bool empty() const { return size() == 0; }
  const Json* begin() const;
  const Json* end() const { return begin() + size(); }
  Json* begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
  Json* end() { return begin() + size(); }

  const Json& operator[](size_t index) const;
  Json& operator[](size_t index) { return const_cast<Json&>(std::as_const(*this)[index]); }
  Json& back() { return (*this)[size() - 1]; }
  void push_back(Json element);  // null becomes an array

  const Json* find(std::string_view key) const;  // null if it is absent, or this is no object
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  Json value(std::string_view key, Json otherwise) const;
  const Json& operator[](std::string_view key) const;  // fails if it is absent
  Json& operator[](std::string_view key);              // adds it if it is absent; null becomes an object
  void erase(std::string_view key);
  void update(const Json& other);  // sets every key of another object
  Items items() const;             // of an object (of null: none)

  // Objects are equal if their keys have the same order too; numbers are compared across their types.
  friend bool operator==(const Json& a, const Json& b);
  // One line where `indent` is negative. Bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;
  friend std::ostream& operator<<(std::ostream& out, const Json& value);

 private:
  friend class JsonBuilder;
  struct Elements;
  bool boolean() const;
  int64_t integer() const;  // the bits of a kUnsigned
  double real() const;
  void need(Kind kind) const;  // fails where the value is of another one

  Kind kind_ = Kind::kNull;
  union {
    int64_t integer_ = 0;
    double real_;
    std::string* text_;
    Elements* elements_;
  };
};

struct Json::Elements {
  static constexpr size_t kFew = 16;  // keys that are searched one by one

  std::vector<std::string> keys;  // of an object, one for each value
  std::vector<Json> values;
  std::vector<uint32_t> sorted;  // the places of the first keys, by key; the few after them are not yet in it

  size_t place(std::string_view key) const;  // keys.size() if it is absent
  void sort_keys();                          // after keys came to the end
};

class Json::Items {
 public:
  struct Iterator {
    const std::string* key;
    const Json* value;
    Item operator*() const { return {*key, *value}; }
    bool operator!=(const Iterator& other) const { return key != other.key; }
    Iterator& operator++() {
      ++key, ++value;
      return *this;
    }
  };
  Items(const std::string* keys, const Json* values, size_t count) : keys_(keys), values_(values), count_(count) {}
  Iterator begin() const { return {keys_, values_}; }
  Iterator end() const { return {keys_ + count_, values_ + count_}; }

 private:
  const std::string* keys_;
  const Json* values_;
  size_t count_;
};

// Parses or fails with the byte, line and column of the first fault. `where` names the source (a path).
// Nesting deeper than 256 is refused: a small file must not be able to exhaust the stack.
Json parse_json(std::string_view text, const std::string& where);
// The same for what another program says while we listen: nothing where it is no JSON.
std::optional<Json> try_parse_json(std::string_view text);

// `where` is the path to `object` so far ("manifest.json: architecture"); messages append the key.
const Json& require(const Json& object, std::string_view key, const std::string& where);
const Json* find(const Json& object, std::string_view key);  // null if absent or JSON null

int64_t require_int(const Json& object, std::string_view key, const std::string& where);
double require_number(const Json& object, std::string_view key, const std::string& where);
std::string require_string(const Json& object, std::string_view key, const std::string& where);
const Json& require_object(const Json& object, std::string_view key, const std::string& where);
const Json& require_array(const Json& object, std::string_view key, const std::string& where);

// The default when the key is absent or null; still an error when it is there with another type.
int64_t int_or(const Json& object, std::string_view key, int64_t otherwise, const std::string& where);
double number_or(const Json& object, std::string_view key, double otherwise, const std::string& where);
bool bool_or(const Json& object, std::string_view key, bool otherwise, const std::string& where);
std::string string_or(const Json& object, std::string_view key, std::string otherwise, const std::string& where);

// The text of a value for an error message, cut to a readable length.
std::string brief(const Json& value);

}  // namespace doppler
