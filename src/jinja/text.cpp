#include "jinja/text.h"

#include <cstring>

#include <utf8proc.h>

namespace doppler::jinja::text {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Span {
  char32_t first, last;
};

template <size_t N>
bool within(const Span (&spans)[N], char32_t c) {
  for (const Span& span : spans) {
    if (c >= span.first && c <= span.last) return true;
  }
  return false;
}

// Numeric_Type=Digit outside category Nd: superscripts, circled digits and the like.
constexpr Span kOtherDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                 {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                 {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                 {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                 {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Lowercase and Uppercase outside categories Ll and Lu.
constexpr Span kOtherLower[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
    {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
    {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Span kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

}  // namespace

int64_t length(std::string_view s) {
  int64_t n = 0;
  for (size_t at = 0; at < s.size(); ++n) decode(s, at);
  return n;
}

size_t offset(std::string_view s, int64_t n) {
  size_t at = 0;
  for (; n > 0 && at < s.size(); --n) decode(s, at);
  return at;
}

bool is_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

bool is_letter(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || within(kOtherDigits, c); }

bool is_alphanumeric(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return is_letter(c) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || within(kOtherLower, c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || within(kOtherUpper, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_name_start(char32_t c) { return c == '_' || is_letter(c) || category(c) == UTF8PROC_CATEGORY_NL; }

bool is_name_part(char32_t c) {
  if (is_name_start(c)) return true;
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
         kind == UTF8PROC_CATEGORY_PC;
}

namespace {

// Walks inwards from both ends while `drop` says so.
template <class Drop>
std::string_view strip_while(std::string_view s, bool left, bool right, Drop drop) {
  size_t begin = 0, end = s.size();
  while (left && begin < end) {
    size_t next = begin;
    const char32_t c = decode(s, next);
    if (!drop(c, s.substr(begin, next - begin))) break;
    begin = next;
  }
  while (right && end > begin) {
    size_t at = end - 1;
    while (at > begin && end - at < 4 && is_continuation(s[at])) --at;
    size_t next = at;
    char32_t c = decode(s, next);
    if (next != end) {  // not UTF-8: one byte is one character
      at = end - 1;
      c = 0xFFFD;
    }
    if (!drop(c, s.substr(at, end - at))) break;
    end = at;
  }
  return s.substr(begin, end - begin);
}

}  // namespace

std::string_view strip(std::string_view s, bool left, bool right) {
  return strip_while(s, left, right, [](char32_t c, std::string_view) { return is_space(c); });
}

std::string_view strip(std::string_view s, std::string_view chars, bool left, bool right) {
  return strip_while(s, left, right,
                     [&](char32_t, std::string_view one) { return chars.find(one) != std::string_view::npos; });
}

size_t find(std::string_view s, std::string_view needle, size_t from) {
  if (from > s.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem is linear in the worst case; std::string_view::find is not.
  const void* hit = memmem(s.data() + from, s.size() - from, needle.data(), needle.size());
  return hit ? static_cast<size_t>(static_cast<const char*>(hit) - s.data()) : std::string_view::npos;
}

size_t rfind(std::string_view s, std::string_view needle) {
  if (needle.size() > s.size()) return std::string_view::npos;
  const std::string backwards(s.rbegin(), s.rend()), reversed(needle.rbegin(), needle.rend());
  const size_t hit = find(backwards, reversed);
  return hit == std::string_view::npos ? hit : s.size() - hit - needle.size();
}

}  // namespace doppler::jinja::text
