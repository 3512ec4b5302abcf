// Format strings: "%s is %d" % values, and "{} is {name}".format(...). Styles that chat templates do not use are
// refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "jinja/lexer.h"
#include "jinja/operations.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000'000;  // what a field may ask for; whether it fits is the heap's to say
constexpr int64_t kMaxPrecision = 400;

struct Field {
  bool left = false;   // '-': padded on the right
  bool zeros = false;  // '0': padded with zeros after the sign
  int64_t width = 0, precision = -1;
  char type = 0;         // s, r, d, i, x, f
  bool refused = false;  // Python knows this style and we do not
};

class PercentFormat {
 public:
  PercentFormat(Runtime& rt, const Value& values) : rt_(rt), values_(values), out_(rt) {}

  Value run(std::string_view format) {
    for (size_t at = 0; at < format.size();) {
      const size_t percent = std::min(format.find('%', at), format.size());
      out_.add(format.substr(at, percent - at));
      at = percent;
      if (at < format.size()) field(format, ++at);
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

  // The value that "%(key)s" names, or null where no key is given.
  const Value* keyed(std::string_view format, size_t& at) {
    if (at >= format.size() || format[at] != '(') return nullptr;
    const size_t end = format.find(')', at);
    if (end == std::string_view::npos) rt_.error("a format string has a key that is not closed");
    if (!values_.is(Kind::kDict)) rt_.error("a format string with keys needs a dict");
    const std::string_view key = format.substr(at + 1, end - at - 1);
    const Value* value = lookup(rt_, values_.as<DictObject>(), key);
    if (!value) rt_.error("a format string names a key that is not there: '" + std::string(key) + "'");
    ++used_;
    at = end + 1;
    return value;
  }

  int64_t count(std::string_view format, size_t& at) {
    int64_t n = 0;
    for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
      n = n * 10 + (format[at] - '0');
      if (n > kMaxWidth) rt_.error("a format string asks for too wide a field");
    }
    return n;
  }

  // What stands between '%' and the value, from format[at] on, which moves behind it.
  Field parse(std::string_view format, size_t& at) {
    const auto more = [&](std::string_view among) {
      return at < format.size() && among.find(format[at]) != std::string_view::npos;
    };
    Field field;
    for (; more("-0+ #"); ++at) {
      field.left = field.left || format[at] == '-';
      field.zeros = field.zeros || format[at] == '0';
      field.refused = field.refused || more("+ #");
    }
    field.width = count(format, at);
    if (more(".")) field.precision = count(format, ++at);
    for (; more("*hlL"); ++at) field.refused = true;
    if (at >= format.size()) rt_.error("a format string ends within a place");
    field.type = format[at++];
    const bool whole = std::string_view("dix").find(field.type) != std::string_view::npos;
    if (std::string_view("aceEFgGouX").find(field.type) != std::string_view::npos) field.refused = true;
    if ((whole && field.precision >= 0) || field.precision > kMaxPrecision) field.refused = true;
    return field;
  }

  void field(std::string_view format, size_t& at) {
    if (format.substr(at).starts_with('%')) {
      ++at;
      return out_.add('%');
    }
    const Value* value = keyed(format, at);
    const size_t begin = at;
    const Field field = parse(format, at);
    if (field.refused) rt_.unsupported("'%" + std::string(format.substr(begin, at - begin)) + "' in a format string");
    convert(value ? *value : next(), field);
  }

  void convert(const Value& value, const Field& field) {
    if (field.type == 's' || field.type == 'r') {
      TextBuilder text(rt_);
      field.type == 's' ? print(rt_, value, text) : print_repr(rt_, value, text);
      std::string_view kept = text.text();
      if (field.precision >= 0) kept = kept.substr(0, text::offset(kept, field.precision));
      return pad("", kept, field);
    }
    if (value.is_undefined()) rt_.fail_undefined(value);
    const std::string place = std::string("'%") + field.type + "'";
    const bool decimal = field.type == 'd' || field.type == 'i';
    if (decimal || field.type == 'x') {
      if (!value.is_integer() && !(decimal && value.is(Kind::kFloat))) {
        rt_.error(place + " needs a number", "", std::string(type_name(value)));
      }
      const int64_t number = value.is_integer() ? value.as_integer() : truncate(rt_, value.as_double()).as_integer();
      const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
      return pad(number < 0 ? "-" : "", decimal ? fmt::format("{}", size) : fmt::format("{:x}", size), field);
    }
    if (field.type != 'f') rt_.error("a format string has an unknown place: " + place);
    if (!value.is_number()) rt_.error(place + " needs a number", "", std::string(type_name(value)));
    const double number = value.as_double();
    const bool negative = std::signbit(number) && !std::isnan(number);
    std::array<char, 800> digits;  // 309, a point, kMaxPrecision more
    std::snprintf(digits.data(), digits.size(), "%.*f", field.precision < 0 ? 6 : static_cast<int>(field.precision),
                  std::fabs(number));
    pad(negative ? "-" : "", digits.data(), field);
  }

  void pad(std::string_view sign, std::string_view text, const Field& field) {
    rt_.count_bytes(text.size());
    const int64_t padding = field.width - static_cast<int64_t>(sign.size()) - text::length(text);
    const bool zeros = field.zeros && field.type != 's' && field.type != 'r';
    if (!field.left && !zeros) out_.repeat(" ", padding);
    out_.add(sign);
    if (!field.left && zeros) out_.repeat("0", padding);
    out_.add(text);
    if (field.left) out_.repeat(" ", padding);
  }

  Runtime& rt_;
  const Value& values_;
  TextBuilder out_;
  size_t used_ = 0;
};

class BraceFormat {
 public:
  BraceFormat(Runtime& rt, const Arguments& arguments) : rt_(rt), arguments_(arguments) {}

  Value run(std::string_view s) {
    TextBuilder out(rt_);
    for (size_t at = 0; at < s.size();) {
      const size_t brace = std::min(s.find_first_of("{}", at), s.size());
      out.add(s.substr(at, brace - at));
      at = brace;
      if (at == s.size()) break;
      if (at + 1 < s.size() && s[at + 1] == s[at]) {
        out.add(s[at]);
        at += 2;
        continue;
      }
      if (s[at] == '}') rt_.error("a format string has a '}' too many");
      const size_t end = s.find('}', at);
      if (end == std::string_view::npos) rt_.error("a format string has a '{' that is not closed");
      print(rt_, value_of(s.substr(at + 1, end - at - 1)), out);
      at = end + 1;
    }
    return out.finish();
  }

 private:
  const Value& value_of(std::string_view name) {
    if (name.find_first_of("!:.[{") != std::string_view::npos) {
      rt_.unsupported("the field '{" + std::string(name) + "}' of str.format()");
    }
    if (name.find_first_not_of("0123456789") != std::string_view::npos) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      rt_.error("a format string names a value that is not there: '" + std::string(name) + "'");
    }
    int64_t index = 0;
    bool too_large = false;
    if (name.empty()) {
      index = next_++;
    } else {
      parse_integer(name, index, too_large);
      numbered_ = true;
    }
    if (numbered_ && next_ > 0) rt_.error("a format string has both numbered and unnumbered fields");
    if (too_large || index >= static_cast<int64_t>(arguments_.positional.size())) {
      rt_.error("a format string has more fields than there are values");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  Runtime& rt_;
  const Arguments& arguments_;
  int64_t next_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value format_percent(Runtime& rt, const Value& format, const Value& values) {
  if (format.is_markup()) rt.unsupported("'%' on a string that is marked safe");
  return PercentFormat(rt, values).run(format.text());
}

Value format_braces(Runtime& rt, const Value& format, const Arguments& arguments) {
  if (format.is_markup()) rt.unsupported("format() on a string that is marked safe");
  return BraceFormat(rt, arguments).run(format.text());
}

}  // namespace doppler::jinja
