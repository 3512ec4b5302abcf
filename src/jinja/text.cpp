#include "jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

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

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND || within(kOtherDigits, c); }

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

namespace {

// Upper and lower case as Python's str has it: Unicode's full mappings, where one letter may become three.
// utf8proc maps one code point to one. These become several (Unicode's SpecialCasing.txt, generated, sorted).
struct Special {
  char32_t c;
  const char* upper;
  const char* title;
};
// clang-format off
constexpr Special kSpecial[] = {
    {0xDF, "SS", "Ss"}, {0x149, "\u02BCN", "\u02BCN"}, {0x1F0, "J\u030C", "J\u030C"},
    {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"}, {0x3B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x587, "\u0535\u0552", "\u0535\u0582"}, {0x1E96, "H\u0331", "H\u0331"}, {0x1E97, "T\u0308", "T\u0308"},
    {0x1E98, "W\u030A", "W\u030A"}, {0x1E99, "Y\u030A", "Y\u030A"}, {0x1E9A, "A\u02BE", "A\u02BE"},
    {0x1F50, "\u03A5\u0313", "\u03A5\u0313"}, {0x1F52, "\u03A5\u0313\u0300", "\u03A5\u0313\u0300"},
    {0x1F54, "\u03A5\u0313\u0301", "\u03A5\u0313\u0301"}, {0x1F56, "\u03A5\u0313\u0342", "\u03A5\u0313\u0342"},
    {0x1F80, "\u1F08\u0399", "\u1F88"}, {0x1F81, "\u1F09\u0399", "\u1F89"}, {0x1F82, "\u1F0A\u0399", "\u1F8A"},
    {0x1F83, "\u1F0B\u0399", "\u1F8B"}, {0x1F84, "\u1F0C\u0399", "\u1F8C"}, {0x1F85, "\u1F0D\u0399", "\u1F8D"},
    {0x1F86, "\u1F0E\u0399", "\u1F8E"}, {0x1F87, "\u1F0F\u0399", "\u1F8F"}, {0x1F88, "\u1F08\u0399", "\u1F88"},
    {0x1F89, "\u1F09\u0399", "\u1F89"}, {0x1F8A, "\u1F0A\u0399", "\u1F8A"}, {0x1F8B, "\u1F0B\u0399", "\u1F8B"},
    {0x1F8C, "\u1F0C\u0399", "\u1F8C"}, {0x1F8D, "\u1F0D\u0399", "\u1F8D"}, {0x1F8E, "\u1F0E\u0399", "\u1F8E"},
    {0x1F8F, "\u1F0F\u0399", "\u1F8F"}, {0x1F90, "\u1F28\u0399", "\u1F98"}, {0x1F91, "\u1F29\u0399", "\u1F99"},
    {0x1F92, "\u1F2A\u0399", "\u1F9A"}, {0x1F93, "\u1F2B\u0399", "\u1F9B"}, {0x1F94, "\u1F2C\u0399", "\u1F9C"},
    {0x1F95, "\u1F2D\u0399", "\u1F9D"}, {0x1F96, "\u1F2E\u0399", "\u1F9E"}, {0x1F97, "\u1F2F\u0399", "\u1F9F"},
    {0x1F98, "\u1F28\u0399", "\u1F98"}, {0x1F99, "\u1F29\u0399", "\u1F99"}, {0x1F9A, "\u1F2A\u0399", "\u1F9A"},
    {0x1F9B, "\u1F2B\u0399", "\u1F9B"}, {0x1F9C, "\u1F2C\u0399", "\u1F9C"}, {0x1F9D, "\u1F2D\u0399", "\u1F9D"},
    {0x1F9E, "\u1F2E\u0399", "\u1F9E"}, {0x1F9F, "\u1F2F\u0399", "\u1F9F"}, {0x1FA0, "\u1F68\u0399", "\u1FA8"},
    {0x1FA1, "\u1F69\u0399", "\u1FA9"}, {0x1FA2, "\u1F6A\u0399", "\u1FAA"}, {0x1FA3, "\u1F6B\u0399", "\u1FAB"},
    {0x1FA4, "\u1F6C\u0399", "\u1FAC"}, {0x1FA5, "\u1F6D\u0399", "\u1FAD"}, {0x1FA6, "\u1F6E\u0399", "\u1FAE"},
    {0x1FA7, "\u1F6F\u0399", "\u1FAF"}, {0x1FA8, "\u1F68\u0399", "\u1FA8"}, {0x1FA9, "\u1F69\u0399", "\u1FA9"},
    {0x1FAA, "\u1F6A\u0399", "\u1FAA"}, {0x1FAB, "\u1F6B\u0399", "\u1FAB"}, {0x1FAC, "\u1F6C\u0399", "\u1FAC"},
    {0x1FAD, "\u1F6D\u0399", "\u1FAD"}, {0x1FAE, "\u1F6E\u0399", "\u1FAE"}, {0x1FAF, "\u1F6F\u0399", "\u1FAF"},
    {0x1FB2, "\u1FBA\u0399", "\u1FBA\u0345"}, {0x1FB3, "\u0391\u0399", "\u1FBC"},
    {0x1FB4, "\u0386\u0399", "\u0386\u0345"}, {0x1FB6, "\u0391\u0342", "\u0391\u0342"},
    {0x1FB7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"}, {0x1FBC, "\u0391\u0399", "\u1FBC"},
    {0x1FC2, "\u1FCA\u0399", "\u1FCA\u0345"}, {0x1FC3, "\u0397\u0399", "\u1FCC"},
    {0x1FC4, "\u0389\u0399", "\u0389\u0345"}, {0x1FC6, "\u0397\u0342", "\u0397\u0342"},
    {0x1FC7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"}, {0x1FCC, "\u0397\u0399", "\u1FCC"},
    {0x1FD2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"}, {0x1FD3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x1FD6, "\u0399\u0342", "\u0399\u0342"}, {0x1FD7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {0x1FE2, "\u03A5\u0308\u0300", "\u03A5\u0308\u0300"}, {0x1FE3, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x1FE4, "\u03A1\u0313", "\u03A1\u0313"}, {0x1FE6, "\u03A5\u0342", "\u03A5\u0342"},
    {0x1FE7, "\u03A5\u0308\u0342", "\u03A5\u0308\u0342"}, {0x1FF2, "\u1FFA\u0399", "\u1FFA\u0345"},
    {0x1FF3, "\u03A9\u0399", "\u1FFC"}, {0x1FF4, "\u038F\u0399", "\u038F\u0345"},
    {0x1FF6, "\u03A9\u0342", "\u03A9\u0342"}, {0x1FF7, "\u03A9\u0342\u0399", "\u03A9\u0342\u0345"},
    {0x1FFC, "\u03A9\u0399", "\u1FFC"}, {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"}, {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"},
    {0xFB13, "\u0544\u0546", "\u0544\u0576"}, {0xFB14, "\u0544\u0535", "\u0544\u0565"},
    {0xFB15, "\u0544\u053B", "\u0544\u056B"}, {0xFB16, "\u054E\u0546", "\u054E\u0576"},
    {0xFB17, "\u0544\u053D", "\u0544\u056D"},
};
// clang-format on

const Special* special(char32_t c) {
  if (c < 0xDF) return nullptr;
  const Special* at = std::lower_bound(std::begin(kSpecial), std::end(kSpecial), c,
                                       [](const Special& s, char32_t x) { return s.c < x; });
  return at != std::end(kSpecial) && at->c == c ? at : nullptr;
}

void append_upper(std::string& out, char32_t c) {
  if (const Special* s = special(c)) {
    out += s->upper;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const Special* s = special(c)) {
    out += s->title;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

// Characters that stand within a word without being letters of it.
bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
             c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
             c == 0xFF0E || c == 0xFF1A;
  }
}

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2, kDottedI = 0x130;

// Lower case of one character after another. A capital sigma at the end of a word has a form of its own.
class Lowering {
 public:
  explicit Lowering(std::string_view s) : s_(s) {}

  // `c` has just been read and ends before byte `next`.
  void append_to(std::string& out, char32_t c, size_t next) {
    if (c == kCapitalSigma) {
      append_utf8(out, after_letter_ && !letter_follows(next) ? kFinalSigma : kSmallSigma);
    } else if (c == kDottedI) {
      out += "i\u0307";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
    see(c);
  }

  void see(char32_t c) {
    if (!is_case_ignorable(c)) after_letter_ = is_cased(c);
  }

 private:
  bool letter_follows(size_t at) {
    if (at < ignorable_until_) at = ignorable_until_;  // a long run is walked once, not once a sigma
    while (at < s_.size()) {
      size_t next = at;
      const char32_t c = decode(s_, next);
      if (!is_case_ignorable(c)) return is_cased(c);
      ignorable_until_ = at = next;
    }
    return false;
  }

  std::string_view s_;
  bool after_letter_ = false;
  size_t ignorable_until_ = 0;
};

}  // namespace

std::string upper(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) append_upper(out, decode(s, at));
  return out;
}

std::string lower(std::string_view s) {
  std::string out;
  Lowering lowering(s);
  for (size_t at = 0; at < s.size();) {
    const char32_t c = decode(s, at);
    lowering.append_to(out, c, at);
  }
  return out;
}

std::string title(std::string_view s) {
  std::string out;
  Lowering lowering(s);
  bool in_word = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = decode(s, at);
    if (in_word) {
      lowering.append_to(out, c, at);
    } else {
      append_title(out, c);
      lowering.see(c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string capitalize(std::string_view s) {
  std::string out;
  Lowering lowering(s);
  for (size_t at = 0; at < s.size();) {
    const bool first = at == 0;
    const char32_t c = decode(s, at);
    if (first) {
      append_title(out, c);
      lowering.see(c);
    } else {
      lowering.append_to(out, c, at);
    }
  }
  return out;
}

}  // namespace doppler::jinja::text
