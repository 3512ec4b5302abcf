#include "base/utf8.h"

#include <cstring>

namespace doppler {

Utf8Unit read_utf8(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true, false};
  uint32_t length = 0;
  unsigned char low = 0x80, high = 0xBF;  // what the second byte may be: no overlong forms, surrogates, or past 10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {};
  }
  char32_t code = lead & (0xFFu >> (length + 1));
  for (uint32_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, false, true};
    const auto next = static_cast<unsigned char>(text[at + i]);
    if (next < low || next > high) return {0xFFFD, i, false, false};
    code = code << 6 | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, true, false};
}

char32_t read_last_utf8(std::string_view text, uint32_t& length) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return read_valid_utf8(text, at, length);
}

void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    while (at + 8 <= text.size()) {  // plain ASCII, eight bytes at a time
      std::memcpy(&eight, text.data() + at, 8);
      if (eight & 0x8080808080808080u) break;
      at += 8;
    }
    if (at == text.size()) break;
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    // The bulk of other text: three bytes, short of the surrogates, or two.
    const auto follows = [&](size_t i) { return (static_cast<unsigned char>(text[at + i]) & 0xC0) == 0x80; };
    if (lead >= 0xE0 && lead < 0xED && at + 3 <= text.size() && follows(1) && follows(2) &&
        (lead > 0xE0 || static_cast<unsigned char>(text[at + 1]) >= 0xA0)) {
      at += 3;
      continue;
    }
    if (lead >= 0xC2 && lead < 0xE0 && at + 2 <= text.size() && follows(1)) {
      at += 2;
      continue;
    }
    const Utf8Unit unit = read_utf8(text, at);
    if (!unit.valid) return at;
    at += unit.length;
  }
  return text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t good = find_invalid_utf8(text);
    out.append(text.substr(0, good));
    if (good == text.size()) break;
    out.append(kReplacement);
    text.remove_prefix(good + read_utf8(text, good).length);
  }
  return out;
}

}  // namespace doppler
