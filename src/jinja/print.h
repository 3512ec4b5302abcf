// Values as text: str(), repr() and JSON, to the letter as Python writes them.
#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

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

}  // namespace doppler::jinja
