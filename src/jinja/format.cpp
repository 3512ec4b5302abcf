#include "jinja/format.h"

#include <cmath>

#include "jinja/access.h"
#include "jinja/arithmetic.h"
#include "jinja/format_number.h"
#include "jinja/literals.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace doppler::jinja {
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

}  // namespace doppler::jinja
