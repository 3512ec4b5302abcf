// Numbers and strings as they are written in a template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace doppler::jinja {

struct NumberLiteral {
  size_t bytes = 0;  // how much of the text it takes
  bool is_real = false;
  bool too_large = false;
  int64_t integer = 0;
  double real = 0;
};

// `s` begins with a digit.
NumberLiteral read_number(std::string_view s, bool may_be_real);

// Resolves Python's escapes. False with a sentence in `fault` when one is broken.
bool unescape(std::string_view s, std::string& out, std::string& fault);

// What int("...", base) and float("...") accept, white space and underscores included. int: 2 <= base <= 36, or 0 to
// take the base from the prefix. `too_large`: a number, but not one of 64 bits.
bool parse_integer(std::string_view s, int base, int64_t& out, bool& too_large);
bool parse_real(std::string_view s, double& out);

}  // namespace doppler::jinja
