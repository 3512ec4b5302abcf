// Filters on numbers and text, and the table of all filters.
#include <algorithm>
#include <cmath>

#include "jinja/builtins.h"
#include "jinja/lexer.h"
#include "jinja/operations.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

Value absolute(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "abs", {}, 0);
  if (value.is_undefined()) rt.fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_double()));
  if (!value.is_integer()) rt.error("abs needs a number", "", std::string(type_name(value)));
  return value.as_integer() < 0 ? negate(rt, value) : Value::integer(value.as_integer());
}

Value to_int(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "int", {"default", "base"}, 0);
  const Value otherwise = args[0].is_missing() ? Value::integer(0) : args[0];
  if (value.is_undefined()) rt.fail_undefined(value);
  if (value.is_integer()) return Value::integer(value.as_integer());
  if (value.is(Kind::kFloat)) return std::isnan(value.as_double()) ? otherwise : truncate(rt, value.as_double());
  if (!value.is_string()) return otherwise;
  if (integer_or(rt, args[1], 10, "the base of int") != 10) rt.unsupported("a base of int() other than 10");
  int64_t integer = 0;
  bool too_large = false;
  rt.count_bytes(value.text().size());
  if (parse_integer(value.text(), integer, too_large)) {
    if (too_large) rt.unsupported("a whole number beyond 64 bits");
    return Value::integer(integer);
  }
  double real = 0;
  if (!parse_real(value.text(), real) || !std::isfinite(real)) return otherwise;
  return truncate(rt, real);
}

Value to_float(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value otherwise = bind(rt, arguments, "float", {"default"}, 0)[0];
  if (value.is_undefined()) rt.fail_undefined(value);
  if (value.is_number()) return Value::real(value.as_double());
  double real = 0;
  if (value.is_string() && parse_real(value.text(), real)) return Value::real(real);
  return otherwise.is_missing() ? Value::real(0.0) : otherwise;
}

Value round(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "round", {"precision", "method"}, 0);
  const int64_t precision = args[0].is_missing() ? 0 : need_integer(rt, args[0], "the precision of round");
  const std::string method = args[1].is_missing() ? "common" : need_string(rt, args[1], "the method of round");
  if (value.is_undefined()) rt.fail_undefined(value);
  if (!value.is_number()) rt.error("round needs a number", "", std::string(type_name(value)));
  if (method == "common") return round_to(rt, value, precision);
  if (method != "ceil" && method != "floor") rt.error("round knows the methods common, ceil and floor");
  const Value unit = arithmetic(rt, "**", Value::integer(10), Value::integer(precision));
  const Value scaled = arithmetic(rt, "*", value, unit);
  const Value whole = scaled.is_integer() ? scaled
                                          : truncate(rt, method == "ceil" ? std::ceil(scaled.as_double())
                                                                          : std::floor(scaled.as_double()));
  return arithmetic(rt, "/", whole, unit);
}

template <std::string (*F)(std::string_view)>
Value mapped(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  const Value text = to_string(rt, value);
  rt.count_characters(text.text().size());
  return rt.string(F(text.text()), text.is_markup());
}

// Upper case at the beginning of each word, and after - ( { [ and <.
std::string title_of(std::string_view s) {
  const auto separates = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || text::is_space(c);
  };
  std::string out;
  for (size_t begin = 0; begin < s.size();) {
    size_t first_end = begin;
    const bool kind = separates(text::decode(s, first_end));
    size_t end = first_end;
    while (end < s.size()) {
      size_t next = end;
      if (separates(text::decode(s, next)) != kind) break;
      end = next;
    }
    out += text::upper(s.substr(begin, first_end - begin)) + text::lower(s.substr(first_end, end - first_end));
    begin = end;
  }
  return out;
}

Value trim(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value chars = bind(rt, arguments, "trim", {"chars"}, 0)[0];
  return strip_text(rt, to_string(rt, value), chars, true, true);
}

Value replace(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "replace", {"old", "new", "count"}, 2);
  return replace_text(rt, to_text(rt, value), to_text(rt, args[0]), to_text(rt, args[1]),
                      integer_or(rt, args[2], -1, "the count of replace"));
}

Value string(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "string", {}, 0);
  return to_string(rt, value);
}

Value safe(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "safe", {}, 0);
  return rt.string(to_text(rt, value), /*markup=*/true);
}

Value escape(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "escape", {}, 0);
  if (value.is_markup()) return value;
  return rt.string(escape_html(to_text(rt, value)), /*markup=*/true);
}

Value format(Runtime& rt, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    rt.error("format takes values by position or by name, not both");
  }
  const Value text = to_string(rt, value);
  if (arguments.named.empty()) return format_percent(rt, text, rt.tuple(arguments.positional));
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, item] : arguments.named) items.emplace_back(rt.string(key), item);
  return format_percent(rt, text, rt.dict(std::move(items)));
}

Value indent(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "indent", {"width", "first", "blank"}, 0);
  const std::string& s = need_string(rt, value, "what is indented");
  const bool by_text = args[0].is_string();
  const int64_t width = by_text ? 1 : integer_or(rt, args[0], 4, "the width of indent");
  const std::string unit = by_text ? args[0].text() : " ";
  const bool blank = truthy_or(args[2], false);
  TextBuilder out(rt);
  if (truthy_or(args[1], false)) out.repeat(unit, width);
  rt.count_characters(s.size());
  const std::string with_newline = s + "\n";  // so that a last line break starts a line of its own
  LineReader lines(with_newline);
  bool first = true;
  for (std::string_view line, with_end; lines.next(line, with_end);) {
    if (!first) out.add('\n');
    if (!first && (blank || !line.empty())) out.repeat(unit, width);
    out.add(line);
    first = false;
  }
  return out.finish(value.is_markup());
}

// Hugging Face's own: json.dumps with ensure_ascii off, and nothing escaped for HTML.
Value tojson(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = truthy_or(args[0], false);
  style.sort_keys = truthy_or(args[3], false);
  style.indented = !args[1].is_missing() && !args[1].is_none();
  TextBuilder indent(rt);
  if (args[1].is_string()) {
    indent.add(args[1].text());
  } else if (style.indented) {
    indent.repeat(" ", need_integer(rt, args[1], "the indent of tojson"));
  }
  style.indent = indent.text();
  if (style.indented) style.item_separator = ",";
  if (!args[2].is_missing() && !args[2].is_none()) {
    if (!args[2].is_sequence() || args[2].items().size() != 2) rt.error("the separators of tojson must be two strings");
    style.item_separator = need_string(rt, args[2].items()[0], "a separator of tojson");
    style.key_separator = need_string(rt, args[2].items()[1], "a separator of tojson");
  }
  TextBuilder out(rt);
  print_json(rt, value, style, out);
  return out.finish();
}

constexpr Builtin kFilters[] = {
    {"abs", absolute},
    {"float", to_float},
    {"int", to_int},
    {"round", round},
    {"capitalize", mapped<text::capitalize>},
    {"center", nullptr},
    {"e", escape},
    {"escape", escape},
    {"filesizeformat", nullptr},
    {"forceescape", nullptr},
    {"format", format},
    {"indent", indent},
    {"lower", mapped<text::lower>},
    {"pprint", nullptr},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"striptags", nullptr},
    {"title", mapped<title_of>},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", nullptr},
    {"upper", mapped<text::upper>},
    {"urlencode", nullptr},
    {"urlize", nullptr},
    {"wordcount", nullptr},
    {"wordwrap", nullptr},
    {"xmlattr", nullptr},
};

const Builtin* find_filter(std::string_view name) {
  const Builtin* filter = find_builtin(kFilters, name);
  return filter ? filter : find_builtin(sequence_filters(), name);
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value call_filter(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments) {
  rt.step();
  const Builtin* filter = find_filter(name);
  if (!filter) rt.error("there is no filter called '" + std::string(name) + "'");
  if (!filter->call) rt.unsupported("the filter '" + std::string(name) + "'");
  return filter->call(rt, value, arguments);
}

}  // namespace doppler::jinja
