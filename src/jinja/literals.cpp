#include "jinja/literals.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "jinja/text.h"

namespace doppler::jinja {
namespace {

bool is_digit_of(char c, int base) {
  const int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'z' ? c - 'a' + 10
                    : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                           : 99;
  return value < base;
}

// Length of digits with single underscores between them, which may also lead when `leading` says so.
size_t digits(std::string_view s, int base, bool leading = false) {
  size_t end = 0;
  while (end < s.size()) {
    const bool underscore = s[end] == '_' && (end > 0 || leading);
    const size_t digit = end + underscore;
    if (digit >= s.size() || !is_digit_of(s[digit], base)) break;
    end = digit + 1;
  }
  return end;
}

std::string without_underscores(std::string_view s) {
  std::string out;
  for (const char c : s) {
    if (c != '_') out += c;
  }
  return out;
}

// `s` holds digits of the base only.
void to_integer(std::string_view s, int base, NumberLiteral& out) {
  const std::string plain = without_underscores(s);
  out.too_large = std::from_chars(plain.data(), plain.data() + plain.size(), out.integer, base).ec != std::errc();
}

// Bytes of a floating point literal, or 0: digits, then a fraction or an exponent or both.
size_t real_length(std::string_view s) {
  size_t end = digits(s, 10);
  if (end == 0) return 0;
  const size_t whole = end;
  if (end < s.size() && s[end] == '.') {
    if (const size_t fraction = digits(s.substr(end + 1), 10)) end += 1 + fraction;
  }
  size_t exponent = end;
  if (exponent < s.size() && (s[exponent] == 'e' || s[exponent] == 'E')) {
    ++exponent;
    if (exponent < s.size() && (s[exponent] == '+' || s[exponent] == '-')) ++exponent;
    if (const size_t n = digits(s.substr(exponent), 10)) end = exponent + n;
  }
  return end == whole ? 0 : end;
}

// `s` is a floating point literal or digits. Too large becomes infinity, too small becomes zero.
double to_real(std::string_view s) { return std::strtod(without_underscores(s).c_str(), nullptr); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

NumberLiteral read_number(std::string_view s, bool may_be_real) {
  NumberLiteral out;
  if (may_be_real && (out.bytes = real_length(s)) > 0) {
    out.is_real = true;
    out.real = to_real(s.substr(0, out.bytes));
    out.too_large = std::isinf(out.real);
    return out;
  }
  if (s.size() > 1 && s[0] == '0') {
    const char prefix = static_cast<char>(s[1] | 0x20);
    const int base = prefix == 'b' ? 2 : prefix == 'o' ? 8 : prefix == 'x' ? 16 : 0;
    if (base != 0) {
      if (const size_t n = digits(s.substr(2), base, /*leading=*/true)) {
        to_integer(s.substr(2, n), base, out);
        out.bytes = 2 + n;
        return out;
      }
    }
  }
  out.bytes = s[0] == '0' ? digits(s, 1) : digits(s, 10);  // zeros only, or a number that does not begin with one
  to_integer(s.substr(0, out.bytes), 10, out);
  return out;
}

bool unescape(std::string_view s, std::string& out, std::string& fault) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '\\') {
      out += s[i++];
      continue;
    }
    if (++i == s.size()) {
      fault = "a string ends in a backslash";
      return false;
    }
    const char c = s[i];
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kMeanings[known];
      ++i;
    } else if (c == '\n') {
      ++i;
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int n = 0; n < 3 && i < s.size() && s[i] >= '0' && s[i] <= '7'; ++n)
        code = code * 8 + static_cast<char32_t>(s[i++] - '0');
      append_utf8(out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (size_t n = 1; n <= width; ++n) {
        const int digit = i + n < s.size() ? hex_digit(s[i + n]) : -1;
        if (digit < 0) {
          fault = std::string("a string has a broken escape \\") + c;
          return false;
        }
        code = code * 16 + static_cast<char32_t>(digit);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        fault = std::string("a string has an escape \\") + c + " that is no character";
        return false;
      }
      append_utf8(out, code);
      i += 1 + width;
    } else if (c == 'N') {
      fault = "a string names a character with \\N, which is not supported";
      return false;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // Python's decoder sees the character as an escape of its own here, and leaves that as text.
      const char32_t code = text::decode(s, i);
      constexpr std::string_view kHex = "0123456789abcdef";
      const int width = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
      out += width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U";
      for (int shift = 4 * (width - 1); shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
    } else {  // unknown escapes stay as they are
      out += '\\';
      out += c;
      ++i;
    }
  }
  return true;
}

bool parse_integer(std::string_view s, int base, int64_t& out, bool& too_large) {
  too_large = false;
  s = text::strip(s, true, true);
  const bool negative = !s.empty() && s[0] == '-';
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.remove_prefix(1);
  bool prefixed = false;
  if (s.size() > 2 && s[0] == '0') {
    const char letter = static_cast<char>(s[1] | 0x20);
    const int implied = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
    if (implied != 0 && (base == implied || base == 0)) {
      base = implied;
      prefixed = true;
      s.remove_prefix(2);
    }
  }
  if (base == 0) {
    if (s.size() > 1 && s[0] == '0' && digits(s, 1) != s.size()) return false;  // 012 has no meaning
    base = 10;
  }
  if (s.empty() || digits(s, base, prefixed) != s.size()) return false;
  const std::string plain = (negative ? "-" : "") + without_underscores(s);
  too_large = std::from_chars(plain.data(), plain.data() + plain.size(), out, base).ec != std::errc();
  return true;
}

bool parse_real(std::string_view s, double& out) {
  s = text::strip(s, true, true);
  const bool negative = !s.empty() && s[0] == '-';
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.remove_prefix(1);
  const std::string word = text::lower(s);
  if (word == "inf" || word == "infinity") {
    out = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else {
    std::string plain(s);
    if (plain.starts_with('.')) plain.insert(0, "0");  // ".5" and "5." are numbers to float()
    const size_t dot = plain.find('.');
    if (dot != std::string::npos && (dot + 1 == plain.size() || !is_digit_of(plain[dot + 1], 10)))
      plain.insert(dot + 1, "0");
    if (s.empty() || s == ".") return false;
    if (real_length(plain) != plain.size() && digits(plain, 10) != plain.size()) return false;
    out = to_real(plain);
  }
  if (negative) out = -out;
  return true;
}

}  // namespace doppler::jinja
