// "%s is %d" % values and str.format().
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "jinja/lexer.h"
#include "jinja/operations.h"
#include "jinja/text.h"
#include "jinja/value.h"

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

namespace {

constexpr int64_t kMaxWidth = 1'000'000'000;  // what a field may ask for; whether it fits is the heap's to say

// Digits at s[at], which moves on. Nothing there gives `otherwise`.
int64_t read_count(Runtime& rt, std::string_view s, size_t& at, int64_t otherwise) {
  if (at >= s.size() || s[at] < '0' || s[at] > '9') return otherwise;
  int64_t count = 0;
  for (; at < s.size() && s[at] >= '0' && s[at] <= '9'; ++at) {
    count = count * 10 + (s[at] - '0');
    if (count > kMaxWidth) rt.error("a format string asks for too wide a field");
  }
  return count;
}

std::string repr_text(Runtime& rt, const Value& value) {
  TextBuilder out(rt);
  print_repr(rt, value, out);
  return out.take();
}

std::string cut(std::string text, int64_t characters) {
  if (characters >= 0) text.resize(text::offset(text, characters));
  return text;
}

class PercentFormat {
 public:
  PercentFormat(Runtime& rt, const Value& values) : rt_(rt), values_(values), out_(rt) {}

  Value run(std::string_view format) {
    for (size_t at = 0; at < format.size();) {
      const size_t percent = std::min(format.find('%', at), format.size());
      out_.add(format.substr(at, percent - at));
      at = percent;
      if (at < format.size()) one(format, ++at);
    }
    const bool left_over =
        values_.is(Kind::kTuple) ? used_ < values_.items().size() : used_ == 0 && !is_mapping(values_);
    if (left_over) rt_.error("a format string has fewer places than there are values");
    return out_.finish();
  }

 private:
  // What has items by key may go unused.
  static bool is_mapping(const Value& value) {
    return value.is(Kind::kDict) || value.is(Kind::kList) || value.is(Kind::kRange) || value.is_undefined();
  }

  const Value& next() {
    if (values_.is(Kind::kTuple)) {
      if (used_ < values_.items().size()) return values_.items()[used_++];
    } else if (used_++ == 0) {
      return values_;
    }
    rt_.error("a format string has more places than there are values");
  }

  int64_t count(std::string_view format, size_t& at, int64_t otherwise) {
    if (at >= format.size() || format[at] != '*') return read_count(rt_, format, at, otherwise);
    ++at;
    const Value& value = next();
    if (!value.is_whole() || value.whole() > kMaxWidth || value.whole() < -kMaxWidth) {
      rt_.error("'*' in a format string needs a whole number");
    }
    return value.whole();
  }

  void one(std::string_view format, size_t& at) {
    FieldStyle style;
    const Value* value = nullptr;
    if (at < format.size() && format[at] == '(') {
      const size_t end = format.find(')', at);
      if (end == std::string_view::npos) rt_.error("a format string has a key that is not closed");
      if (!values_.is(Kind::kDict)) rt_.error("a format string with keys needs a dict");
      const std::string_view key = format.substr(at + 1, end - at - 1);
      value = lookup(rt_, values_.as<DictObject>(), key);
      if (!value) rt_.error("a format string names a key that is not there: '" + std::string(key) + "'");
      ++used_;
      at = end + 1;
    }
    for (; at < format.size(); ++at) {
      const char c = format[at];
      if (c == '-') {
        style.align = '<';
      } else if (c == '+') {
        style.sign = '+';
      } else if (c == ' ') {
        if (style.sign == '-') style.sign = ' ';
      } else if (c == '0') {
        style.fill = "0";
      } else if (c == '#') {
        style.alternate = true;
      } else {
        break;
      }
    }
    style.width = count(format, at, 0);
    if (style.width < 0) {
      style.align = '<';
      style.width = -style.width;
    }
    if (at < format.size() && format[at] == '.') style.precision = std::max<int64_t>(count(format, ++at, 0), 0);
    while (at < format.size() && (format[at] == 'l' || format[at] == 'h' || format[at] == 'L')) ++at;
    if (at >= format.size()) rt_.error("a format string ends within a place");
    style.type = format[at++];
    if (style.type == '%') {
      out_.add('%');
      return;
    }
    convert(value ? *value : next(), style);
  }

  void convert(const Value& value, FieldStyle style) {
    if (style.align == '<') style.fill = " ";
    switch (style.type) {
      case 's':
      case 'r': {
        style.fill = " ";
        NumberText text{"", cut(style.type == 's' ? to_text(rt_, value) : repr_text(rt_, value), style.precision)};
        return add_field(rt_, text, style, '>', out_);
      }
      case 'c': {
        style.fill = " ";
        NumberText text{"", value.is_string() ? value.text() : ""};
        if (!value.is_string()) rt_.unsupported("%c of a number");
        if (text::length(text.digits) != 1) rt_.error("%c needs one character");
        return add_field(rt_, text, style, '>', out_);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        const char type = style.type;
        if (type == 'i' || type == 'u') style.type = 'd';
        if (value.is_undefined()) rt_.use_of(value);
        const bool decimal = style.type == 'd';
        if (!value.is_whole() && !(decimal && value.is(Kind::kFloat))) {
          rt_.error(std::string("%") + type + " needs a number", "", std::string(type_name(value)));
        }
        NumberText text = whole_text(value.is_whole() ? value.whole() : truncate(rt_, value.number()).whole(), style);
        if (style.precision > kMaxPrecision) rt_.unsupported("a precision above " + std::to_string(kMaxPrecision));
        while (static_cast<int64_t>(text.digits.size()) < style.precision) text.digits.insert(0, "0");
        return add_field(rt_, text, style, style.fill == "0" ? '=' : '>', out_);
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is_undefined()) rt_.use_of(value);
        if (!value.is_number()) {
          rt_.error(std::string("%") + style.type + " needs a number", "", std::string(type_name(value)));
        }
        if (!std::isfinite(value.number())) style.fill = " ";
        return add_field(rt_, real_text(rt_, value.number(), style), style, style.fill == "0" ? '=' : '>', out_);
      default: rt_.error(std::string("a format string has an unknown place: '%") + style.type + "'");
    }
  }

  Runtime& rt_;
  const Value& values_;
  TextBuilder out_;
  size_t used_ = 0;
};

}  // namespace

Value format_percent(Runtime& rt, const Value& format, const Value& values) {
  if (format.is_markup()) rt.unsupported("'%' on a string that is marked safe");
  return PercentFormat(rt, values).run(format.text());
}

namespace {

class BraceFormat {
 public:
  BraceFormat(Runtime& rt, const Arguments& arguments) : rt_(rt), arguments_(arguments) {}

  void run(std::string_view s, TextBuilder& out, int level) {
    if (level > 2) rt_.error("the fields of a format string are nested too deeply");
    for (size_t at = 0; at < s.size();) {
      const char c = s[at];
      if (c != '{' && c != '}') {
        const size_t end = std::min(s.find_first_of("{}", at), s.size());
        out.add(s.substr(at, end - at));
        at = end;
      } else if (at + 1 < s.size() && s[at + 1] == c) {
        out.add(c);
        at += 2;
      } else if (c == '}') {
        rt_.error("a format string has a '}' too many");
      } else {
        at = field(s, at + 1, out, level);
      }
    }
  }

 private:
  // The field that begins at s[begin]; returns where the text goes on.
  size_t field(std::string_view s, size_t begin, TextBuilder& out, int level) {
    size_t end = begin;
    int open = 1;
    for (; end < s.size(); ++end) {
      if (s[end] == '{') ++open;
      if (s[end] == '}' && --open == 0) break;
    }
    if (end >= s.size()) rt_.error("a format string has a '{' that is not closed");
    const std::string_view whole = s.substr(begin, end - begin);
    const size_t name_end = std::min(whole.find_first_of("!:"), whole.size());
    Value value = resolve(whole.substr(0, name_end));
    std::string_view rest = whole.substr(name_end);
    if (rest.starts_with("!")) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) rt_.error("a format string has a broken conversion");
      value = converted(value, rest[1]);
      rest.remove_prefix(2);
    }
    TextBuilder style(rt_);
    if (!rest.empty()) run(rest.substr(1), style, level + 1);
    write(value, style.text(), out);
    return end + 1;
  }

  Value converted(const Value& value, char how) {
    if (how == 's') return to_string(rt_, value);
    if (how != 'r') rt_.unsupported(std::string("the conversion '!") + how + "' of a format string");
    TextBuilder out(rt_);
    print_repr(rt_, value, out);
    return out.finish();
  }

  Value resolve(std::string_view path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    if (first_end == 0 && !path.empty()) rt_.error("a format string has a field without a number or name");
    Value value = first(path.substr(0, first_end));
    std::string_view rest = path.substr(first_end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        value = get_attribute(rt_, value, rest.substr(1, end - 1));
        rest.remove_prefix(end);
        continue;
      }
      const size_t end = rest[0] == '[' ? rest.find(']') : std::string_view::npos;
      if (end == std::string_view::npos || end < 2) rt_.error("a format string has a broken field name");
      const std::string_view key = rest.substr(1, end - 1);
      int64_t index = 0;
      bool too_large = false;
      const bool is_index = parse_digits(key, index, too_large);
      value = get_item(rt_, value, is_index ? Value::integer(index) : rt_.string(std::string(key)));
      rest.remove_prefix(end + 1);
    }
    return value;
  }

  static bool parse_digits(std::string_view s, int64_t& out, bool& too_large) {
    if (s.find_first_not_of("0123456789") != std::string_view::npos || s.empty()) return false;
    return parse_integer(s, 10, out, too_large) && !too_large;
  }

  Value first(std::string_view name) {
    int64_t index = 0;
    bool too_large = false;
    if (name.empty() || parse_digits(name, index, too_large)) {
      if (name.empty()) index = next_++;
      if (name.empty() ? numbered_ : next_ > 0) {
        rt_.error("a format string has both numbered and unnumbered fields");
      }
      if (!name.empty()) numbered_ = true;
      if (index >= static_cast<int64_t>(arguments_.positional.size())) {
        rt_.error("a format string has more fields than there are values");
      }
      return arguments_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    rt_.error("a format string names a value that is not there: '" + std::string(name) + "'");
  }

  int64_t count(std::string_view s, size_t& at) {
    int64_t value = 0;
    for (; at < s.size() && s[at] >= '0' && s[at] <= '9'; ++at) {
      value = value * 10 + (s[at] - '0');
      if (value > 1'000'000'000) rt_.error("a format string asks for too wide a field");
    }
    return value;
  }

  FieldStyle parse_style(std::string_view s) {
    FieldStyle style;
    constexpr std::string_view kAligns = "<>^=";
    size_t at = 0;
    size_t after_fill = 0;
    if (!s.empty()) text::decode(s, after_fill);
    if (after_fill < s.size() && kAligns.find(s[after_fill]) != std::string_view::npos) {
      style.fill = s.substr(0, after_fill);
      style.align = s[after_fill];
      at = after_fill + 1;
    } else if (!s.empty() && kAligns.find(s[0]) != std::string_view::npos) {
      style.align = s[at++];
    }
    if (at < s.size() && (s[at] == '+' || s[at] == '-' || s[at] == ' ')) style.sign = s[at++];
    if (at < s.size() && s[at] == '#') style.alternate = s[at++];
    if (at < s.size() && s[at] == '0') {
      ++at;
      if (!style.align) {
        style.fill = "0";
        style.align = '=';
      }
    }
    style.width = count(s, at);
    if (at < s.size() && (s[at] == ',' || s[at] == '_')) style.grouping = s[at++];
    if (at < s.size() && s[at] == '.') {
      const size_t begin = ++at;
      style.precision = count(s, at);
      if (at == begin) rt_.error("a format string has a '.' without a precision");
    }
    if (at < s.size()) style.type = s[at++];
    if (at < s.size()) rt_.error("a format string has a style with no meaning: '" + std::string(s) + "'");
    return style;
  }

  void write(const Value& value, const std::string& spec, TextBuilder& out) {
    if (value.is_markup()) rt_.unsupported("formatting a string that is marked safe");
    if (spec.empty()) return print(rt_, value, out);
    FieldStyle style = parse_style(spec);
    if (style.fill == "0" && style.grouping) rt_.unsupported("zeros before grouped digits");
    if (value.is_string()) {
      if (style.type && style.type != 's') wrong_style(value, spec);
      if (style.align == '=' && style.fill == "0") style.align = '<';  // "{:05}" pads text on the right
      if (style.align == '=' || style.sign != '-' || style.grouping || style.alternate) wrong_style(value, spec);
      std::string text = value.text();
      if (style.precision >= 0) text.resize(text::offset(text, style.precision));
      return add_field(rt_, {"", std::move(text)}, style, '<', out);
    }
    if (!value.is_number()) wrong_style(value, spec);
    constexpr std::string_view kWhole = "bdoxX", kReal = "eEfFgG%";
    const bool real = value.is(Kind::kFloat) || kReal.find(style.type) != std::string_view::npos;
    if (!real) {
      if (!style.type) style.type = 'd';
      if (kWhole.find(style.type) == std::string_view::npos || style.precision >= 0) wrong_style(value, spec);
      return add_field(rt_, whole_text(value.whole(), style), style, '>', out);
    }
    if (!style.type) {
      if (style.precision >= 0 || style.grouping) rt_.unsupported("the style '" + spec + "' of a format string");
      NumberText text{"", float_text(std::fabs(value.number()))};
      text.sign = std::signbit(value.number()) ? "-" : style.sign == '-' ? "" : std::string(1, style.sign);
      return add_field(rt_, text, style, '>', out);
    }
    if (kReal.find(style.type) == std::string_view::npos) wrong_style(value, spec);
    add_field(rt_, real_text(rt_, value.number(), style), style, '>', out);
  }

  [[noreturn]] void wrong_style(const Value& value, const std::string& spec) {
    rt_.error("the style '" + spec + "' of a format string does not fit " + a_type(value));
  }

  Runtime& rt_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value format_braces(Runtime& rt, const Value& format, const Arguments& arguments) {
  if (format.is_markup()) rt.unsupported("format() on a string that is marked safe");
  TextBuilder out(rt);
  BraceFormat(rt, arguments).run(format.text(), out, 1);
  return out.finish();
}

}  // namespace doppler::jinja
