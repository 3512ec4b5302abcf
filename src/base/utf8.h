// UTF-8: reading and writing characters, and what to do with bytes that are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace doppler {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// One character, or one maximal invalid sequence (the longest beginning of a character that is there, or one byte).
struct Utf8Unit {
  char32_t code = 0xFFFD;
  uint32_t length = 1;  // bytes
  bool valid = false;
  bool cut = false;  // not valid, but more bytes at the end of the text could make it so
};

// The unit at text[at]; at < text.size().
Utf8Unit read_utf8(std::string_view text, size_t at);

// The character at text[at] of text known to be valid, and its length.
inline char32_t read_valid_utf8(std::string_view text, size_t at, uint32_t& length) {
  const auto b = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = b(0);
  if (lead < 0x80) return length = 1, lead;
  if (lead < 0xE0) return length = 2, (lead & 0x1F) << 6 | (b(1) & 0x3F);
  if (lead < 0xF0) return length = 3, (lead & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F);
  return length = 4, (lead & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F);
}

// The last character of valid, non-empty text, and its length.
char32_t read_last_utf8(std::string_view text, uint32_t& length);

void append_utf8(std::string& text, char32_t code);

// The first byte that does not belong to a valid character; text.size() if there is none.
size_t find_invalid_utf8(std::string_view text);

// Each maximal invalid sequence becomes one U+FFFD (as in the Unicode standard's recommended practice).
std::string replace_invalid_utf8(std::string_view text);

}  // namespace doppler
