// What a template can name: filters, tests, global functions, and the methods and attributes of values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "jinja/operations.h"
#include "jinja/value.h"

namespace doppler::jinja {

// A filter, a method or a global function under its name.
struct Builtin {
  std::string_view name;
  FunctionObject::Call call;  // null: jinja2 has it and we do not
};
const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);  // null where there is none

// Filters: {{ value | name(arguments) }}.
// Whether jinja2 has a filter of this name.
bool is_filter(std::string_view name);
// Fails when there is none.
Value call_filter(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments);

// The filters of filters_sequence.cpp; filters.cpp looks among these and its own.
std::span<const Builtin> sequence_filters();

// Tests: {{ value is name(arguments) }}.
// Whether jinja2 has a test of this name.
bool is_test(std::string_view name);
// Fails when there is none.
bool call_test(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments);

// range, dict, namespace, raise_exception, strftime_now; kMissing where there is none of this name.
Value global_function(Runtime& rt, std::string_view name);

// The local time now, as datetime.now().strftime(format) writes it.
std::string local_time(const std::string& format);
// A time of the caller's choice (seconds since 1970, UTC).
std::string utc_time(const std::string& format, int64_t seconds);

// An attribute as getattr() finds it, or nothing. What changes a list or dict, and everything that begins with an
// underscore, is undefined with a message that says why: the sandbox forbids it. What Python has and we have not is an
// error.
std::optional<Value> python_attribute(Runtime& rt, const Value& object, std::string_view name);

std::span<const Builtin> string_methods();

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
