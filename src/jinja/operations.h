// Python's operations on values: operators (operators.cpp), what is inside a value (access.cpp), values as text
// (print.cpp) and format strings (format.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace doppler::jinja {

// ---- Operators (operators.cpp)

bool is_truthy(const Value& value);

bool equal(Runtime& rt, const Value& a, const Value& b);
// op is one of < <= > >=. Fails on values that have no order.
bool ordered(Runtime& rt, std::string_view op, const Value& a, const Value& b);
// Any comparison, `in` and `not in` included.
bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);

// op is one of + - * / // % **.
Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
Value plus(Runtime& rt, const Value& value);

// The value of a key, or null. The key must be hashable.
const Value* lookup(Runtime& rt, const DictObject& dict, const Value& key);
const Value* lookup(Runtime& rt, const DictObject& dict, std::string_view key);
bool is_hashable(Runtime& rt, const Value& value);
// Puts in or replaces, as building a dict does. Fails on a key that cannot be one.
void insert_or_assign(Runtime& rt, std::vector<std::pair<Value, Value>>& items, Value key, Value value);

// "&lt;" for "<" and so on.
std::string escape_html(std::string_view s);

// Both are numbers; op is one of + - * / // % **.
Value arithmetic(Runtime& rt, std::string_view op, const Value& a, const Value& b);

// round(value, digits) as Python does it: half to even, on the exact decimal value.
Value round_to(Runtime& rt, const Value& number, int64_t digits);
// int(value) of a float; fails where it is not finite.
Value truncate(Runtime& rt, double value);

// ---- What is inside a value (access.cpp)

// A function or method as a value.
struct FunctionObject : Object {
  using Call = Value (*)(Runtime& rt, const Value& self, const Arguments& arguments);
  Call call = nullptr;
  Value self;  // kMissing for a global function
  void release() override { self = Value(); }
};
Value make_function(Runtime& rt, FunctionObject::Call call, Value self = Value());

// Walks over anything that can be iterated. Fails at once on anything else.
class Cursor {
 public:
  Cursor(Runtime& rt, Value source);
  // False at the end.
  bool next(Value& out);

 private:
  Runtime* rt_;
  Value source_;
  size_t at_ = 0;  // item, or byte of a string
};

bool is_iterable(const Value& value);
// What a view shows of entry `index` of its dict.
Value view_item(Runtime& rt, const ViewObject& view, size_t index);
// All items, as list() gives them.
Value to_list(Runtime& rt, const Value& value);
// len(), or nothing where Python has none.
std::optional<int64_t> try_length(const Value& value);
int64_t length(Runtime& rt, const Value& value);
// Items from last to first as a list, or nothing where Python's reversed() fails.
std::optional<Value> try_reversed(Runtime& rt, const Value& value);

// x.name: an attribute of the type first, then an item. Undefined when there is neither.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
// x[key]: an item first, then an attribute.
Value get_item(Runtime& rt, const Value& object, const Value& key);
// x|attr("name"): attributes only.
Value get_only_attribute(Runtime& rt, const Value& object, std::string_view name);
// x[start:stop:step]; kMissing where left out.
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

// Bounds of Python's slice over `length` items, clamped; step is not 0.
struct SliceBounds {
  int64_t start = 0, stop = 0, step = 1;
  int64_t count = 0;
};
SliceBounds slice_bounds(Runtime& rt, int64_t length, const Value& start, const Value& stop, const Value& step);

// ---- Values as text (print.cpp, format.cpp)

// repr(float): the shortest digits that read back the same.
std::string float_text(double value);

void print(Runtime& rt, const Value& value, TextBuilder& out);       // str(value)
void print_repr(Runtime& rt, const Value& value, TextBuilder& out);  // repr(value)
std::string to_text(Runtime& rt, const Value& value);
// str(value) as a value; a string, markup or not, is returned as it is.
Value to_string(Runtime& rt, const Value& value);

// json.dumps(value, ...).
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level of it
  std::string item_separator = ", ", key_separator = ": ";
};
void print_json(Runtime& rt, const Value& value, const JsonStyle& style, TextBuilder& out);

// "%s is %d" % values: a tuple, a dict, or one value.
Value format_percent(Runtime& rt, const Value& format, const Value& values);

// "{} is {name:>8}".format(...).
Value format_braces(Runtime& rt, const Value& format, const Arguments& arguments);

// ---- Arguments of filters, tests and methods as C++ values; a wrong type is an error that names the argument

inline const std::string& need_string(const Runtime& rt, const Value& value, std::string_view what) {
  if (value.is_undefined()) rt.fail_undefined(value);
  if (!value.is_string()) rt.error(std::string(what) + " must be a string", "", std::string(type_name(value)));
  return value.text();
}

inline int64_t need_integer(const Runtime& rt, const Value& value, std::string_view what) {
  if (value.is_undefined()) rt.fail_undefined(value);
  if (!value.is_integer()) rt.error(std::string(what) + " must be a whole number", "", std::string(type_name(value)));
  return value.as_integer();
}

inline int64_t integer_or(const Runtime& rt, const Value& value, int64_t otherwise, std::string_view what) {
  return value.is_missing() || value.is_none() ? otherwise : need_integer(rt, value, what);
}

inline bool truthy_or(const Value& value, bool otherwise) { return value.is_missing() ? otherwise : is_truthy(value); }

// A stable merge sort that is safe with any comparison: values from outside (NaN) need not be in any order, and
// std::stable_sort may then do anything.
template <class T, class Less>
void stable_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size()), end = std::min(begin + 2 * width, items.size());
      size_t a = begin, b = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_b = b < end && (a == middle || less(items[b], items[a]));
        merged[out] = std::move(items[take_b ? b++ : a++]);
      }
    }
    items.swap(merged);
  }
}

}  // namespace doppler::jinja
