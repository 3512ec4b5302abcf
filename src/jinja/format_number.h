// A number or a piece of text laid out in a field: what both kinds of formatting end in.
#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

struct FieldStyle {
  std::string fill = " ";  // one character
  char align = 0;          // '<', '>', '^', '=' (after the sign), or 0 for the type's own
  char sign = '-';         // '-', '+' or ' '
  bool alternate = false;  // 0x before hexadecimal numbers
  char grouping = 0;       // ',' or '_' between thousands
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;  // d, f, s, ...; 0 for the type's own
};

constexpr int64_t kMaxPrecision = 400;

// Digits and sign apart: padding may go between them.
struct NumberText {
  std::string sign;  // "-", "+", " " or nothing, then a prefix such as 0x
  std::string digits;
};
// type is one of b d o x X.
NumberText whole_text(int64_t value, const FieldStyle& style);
// type is one of e E f F g G %; the precision is taken as 6 when it is not given.
NumberText real_text(Runtime& rt, double value, const FieldStyle& style);

// `own_align` is used where the style names none.
void add_field(Runtime& rt, const NumberText& text, const FieldStyle& style, char own_align, TextBuilder& out);

}  // namespace doppler::jinja
