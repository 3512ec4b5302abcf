// The attributes of Python's types: "abc".upper, {}.items, loop.index, namespace.x.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/access.h"

namespace doppler::jinja {

// An attribute as getattr() finds it, or nothing. What changes a list or dict, and everything that begins with an
// underscore, is undefined with a message that says why: the sandbox forbids it. What Python has and we have not is an
// error.
std::optional<Value> python_attribute(Runtime& rt, const Value& object, std::string_view name);

struct Method {
  std::string_view name;
  FunctionObject::Call call;
};

// Null where there is none. The first also asks the second.
const Method* find_string_method(std::string_view name);
const Method* find_split_method(std::string_view name);

// str.strip() and its sides; kMissing or None strips white space.
Value strip_text(Runtime& rt, const Value& string, const Value& chars, bool left, bool right);
// str.replace(); a negative count replaces all.
Value replace_text(Runtime& rt, std::string_view s, std::string_view old, std::string_view by, int64_t count);
// The lines of str.splitlines(), one by one.
class LineReader {
 public:
  explicit LineReader(std::string_view s) : s_(s) {}
  // `with_end` is the line with its line break. False after the last.
  bool next(std::string_view& line, std::string_view& with_end);

 private:
  std::string_view s_;
};
// str.isupper() and str.islower().
bool has_case(std::string_view s, bool upper);

}  // namespace doppler::jinja
