// Strings as Python sees them: UTF-8 underneath, but length, positions and character classes go by code point.
// Every function takes any bytes; a byte that is not UTF-8 counts as one character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace doppler::jinja::text {

// The code point at byte `at`, which moves past it. Needs at < s.size().
inline char32_t decode(std::string_view s, size_t& at) {
  if (static_cast<unsigned char>(s[at]) < 0x80) return static_cast<unsigned char>(s[at++]);
  const Utf8Unit unit = read_utf8(s, at);
  at += unit.valid ? unit.length : 1;
  return unit.code;
}

int64_t length(std::string_view s);
// Byte offset of character `n`, or s.size() when there are not so many.
size_t offset(std::string_view s, int64_t n);

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_alphanumeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);  // such as U+01C5
bool is_name_start(char32_t c);
bool is_name_part(char32_t c);

std::string upper(std::string_view s);
std::string lower(std::string_view s);
std::string title(std::string_view s);       // str.title()
std::string capitalize(std::string_view s);  // str.capitalize()

// Without leading (left) and trailing (right) white space, or characters out of `chars`.
std::string_view strip(std::string_view s, bool left, bool right);
std::string_view strip(std::string_view s, std::string_view chars, bool left, bool right);

// Byte offset of the first or last `needle`, or npos. Linear in both, whatever they hold.
size_t find(std::string_view s, std::string_view needle, size_t from = 0);
size_t rfind(std::string_view s, std::string_view needle);

}  // namespace doppler::jinja::text
