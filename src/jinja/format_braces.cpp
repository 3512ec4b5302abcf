// str.format().
#include <cmath>

#include "jinja/access.h"
#include "jinja/format.h"
#include "jinja/format_number.h"
#include "jinja/literals.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace doppler::jinja {
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
