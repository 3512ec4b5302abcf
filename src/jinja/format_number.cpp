#include "jinja/format_number.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "jinja/text.h"

namespace doppler::jinja {
namespace {

std::string grouped(const std::string& digits, char separator, size_t every) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string sign_of(bool negative, char style) {
  if (negative) return "-";
  return style == '-' ? "" : std::string(1, style);
}

}  // namespace

NumberText whole_text(int64_t value, const FieldStyle& style) {
  NumberText out;
  out.sign = sign_of(value < 0, style.sign);
  uint64_t rest = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const uint64_t base = style.type == 'b'                        ? 2
                        : style.type == 'o'                      ? 8
                        : style.type == 'x' || style.type == 'X' ? 16
                                                                 : 10;
  const std::string_view alphabet = style.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  do {
    out.digits.insert(out.digits.begin(), alphabet[rest % base]);
    rest /= base;
  } while (rest > 0);
  if (style.grouping) out.digits = grouped(out.digits, style.grouping, base == 10 ? 3 : 4);
  if (style.alternate && base != 10) out.sign += std::string("0") + style.type;
  return out;
}

NumberText real_text(Runtime& rt, double value, const FieldStyle& style) {
  if (style.precision > kMaxPrecision) rt.unsupported("a precision above " + std::to_string(kMaxPrecision));
  const bool percent = style.type == '%';
  const int precision = style.precision < 0 ? 6 : static_cast<int>(style.precision);
  const char type = percent ? 'f' : style.type;
  const double magnitude = std::fabs(percent ? value * 100 : value);
  std::array<char, 800> buffer;  // 309 digits, a point, 400 more
  const std::string pattern = std::string("%") + (style.alternate ? "#" : "") + ".*" + type;
  std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), precision, magnitude);
  NumberText out;
  out.sign = sign_of(std::signbit(value) && !std::isnan(value), style.sign);
  out.digits = buffer.data();
  if (style.grouping && std::isfinite(magnitude)) out.digits = grouped(out.digits, style.grouping, 3);
  if (percent) out.digits += '%';
  return out;
}

void add_field(Runtime& rt, const NumberText& text, const FieldStyle& style, char own_align, TextBuilder& out) {
  rt.work(text.digits.size());
  const int64_t padding = style.width - text::length(text.sign) - text::length(text.digits);
  const char align = style.align ? style.align : own_align;
  const int64_t left = padding <= 0 || align == '<' ? 0 : align == '^' ? padding / 2 : padding;
  if (align == '=') {
    out.add(text.sign);
    out.repeat(style.fill, left);
  } else {
    out.repeat(style.fill, left);
    out.add(text.sign);
  }
  out.add(text.digits);
  out.repeat(style.fill, padding - left);
}

}  // namespace doppler::jinja
