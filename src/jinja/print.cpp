// str(), repr() and json.dumps(), to the letter as Python writes them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jinja/evaluator.h"
#include "jinja/operations.h"
#include "jinja/text.h"

namespace doppler::jinja {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest text that reads back as the same number; fmt writes exponents just where Python does.
  std::string out = fmt::format("{}", value);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

namespace {

std::string hex(char32_t code, int width) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (int shift = 4 * (width - 1); shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
  return out;
}

void print_quoted(std::string_view s, TextBuilder& out) {
  const bool has_single = s.find('\'') != std::string_view::npos, has_double = s.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.add(quote);
  for (size_t at = 0; at < s.size();) {
    const size_t begin = at;
    const char32_t c = text::decode(s, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.add('\\');
      out.add(static_cast<char>(c));
    } else if (c == '\n') {
      out.add("\\n");
    } else if (c == '\r') {
      out.add("\\r");
    } else if (c == '\t') {
      out.add("\\t");
    } else if (text::is_printable(c)) {
      out.add(s.substr(begin, at - begin));
    } else if (c < 0x100) {
      out.add("\\x" + hex(c, 2));
    } else if (c < 0x10000) {
      out.add("\\u" + hex(c, 4));
    } else {
      out.add("\\U" + hex(c, 8));
    }
  }
  out.add(quote);
}

void print_items(Runtime& rt, const std::vector<Value>& items, TextBuilder& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(", ");
    print_repr(rt, items[i], out);
  }
}

void print_dict(Runtime& rt, const DictObject& dict, TextBuilder& out) {
  out.add('{');
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!first) out.add(", ");
    first = false;
    print_repr(rt, key, out);
    out.add(": ");
    print_repr(rt, value, out);
  }
  out.add('}');
}

void print_view(Runtime& rt, const Value& value, TextBuilder& out) {
  const ViewObject& view = value.as<ViewObject>();
  out.add(type_name(value));
  out.add("([");
  const size_t count = view.dict.as<DictObject>().items.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out.add(", ");
    print_repr(rt, view_item(rt, view, i), out);
  }
  out.add("])");
}

void print_range(const RangeObject& range, TextBuilder& out) {
  out.add("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
  if (range.step != 1) out.add(", " + std::to_string(range.step));
  out.add(')');
}

void print_namespace(Runtime& rt, const NamespaceObject& space, TextBuilder& out) {
  out.add("<Namespace {");
  bool first = true;
  const auto attributes = space.attributes;  // a copy: printing a loop may run the template, which may set others
  for (const auto& [name, value] : attributes) {
    if (!first) out.add(", ");
    first = false;
    print_quoted(name, out);
    out.add(": ");
    print_repr(rt, value, out);
  }
  out.add("}>");
}

}  // namespace

void print(Runtime& rt, const Value& value, TextBuilder& out) {
  if (value.is_string()) {
    out.add(value.text());
  } else if (!value.is_undefined()) {  // which prints as nothing
    print_repr(rt, value, out);
  }
}

void print_repr(Runtime& rt, const Value& value, TextBuilder& out) {
  const Runtime::DepthGuard guard(rt);
  rt.step();
  switch (value.kind()) {
    case Kind::kNone: out.add("None"); return;
    case Kind::kBool: out.add(value.as_integer() ? "True" : "False"); return;
    case Kind::kInt: out.add(std::to_string(value.as_integer())); return;
    case Kind::kFloat: out.add(float_text(value.as_double())); return;
    case Kind::kUndefined: out.add("Undefined"); return;
    case Kind::kString:
      if (value.is_markup()) out.add("Markup(");
      print_quoted(value.text(), out);
      if (value.is_markup()) out.add(')');
      return;
    case Kind::kList:
      out.add('[');
      print_items(rt, value.items(), out);
      out.add(']');
      return;
    case Kind::kTuple:
      out.add('(');
      print_items(rt, value.items(), out);
      out.add(value.items().size() == 1 ? ",)" : ")");
      return;
    case Kind::kDict: print_dict(rt, value.as<DictObject>(), out); return;
    case Kind::kView: print_view(rt, value, out); return;
    case Kind::kRange: print_range(value.as<RangeObject>(), out); return;
    case Kind::kNamespace: print_namespace(rt, value.as<NamespaceObject>(), out); return;
    case Kind::kMacro: print_macro(value.as<MacroObject>(), out); return;
    case Kind::kLoop: print_loop(rt, value.as<LoopObject>(), out); return;
    case Kind::kIterator:
    case Kind::kFunction:
      rt.error(described_type(value) + " cannot be printed", "a call, or |list to see what is in it");
    case Kind::kMissing:
    case Kind::kScope: break;
  }
  rt.error("a value that templates do not have is printed");
}

std::string to_text(Runtime& rt, const Value& value) {
  if (value.is_string()) return value.text();
  TextBuilder out(rt);
  print(rt, value, out);
  return out.take();
}

Value to_string(Runtime& rt, const Value& value) {
  if (value.is_string()) return value;
  TextBuilder out(rt);
  print(rt, value, out);
  return out.finish();
}

namespace {

std::string unicode_escape(char32_t unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
  return out;
}

void print_json_string(Runtime& rt, std::string_view s, bool ensure_ascii, TextBuilder& out) {
  rt.count_characters(s.size());
  out.add('"');
  size_t plain = 0;  // start of what can be copied as it is
  for (size_t at = 0; at < s.size();) {
    const size_t begin = at;
    const char32_t c = text::decode(s, at);
    if (c >= 0x20 && c != '"' && c != '\\' && !(ensure_ascii && c >= 0x7F)) continue;
    if (c == 0x7F) continue;
    out.add(s.substr(plain, begin - plain));
    plain = at;
    switch (c) {
      case '"': out.add("\\\""); break;
      case '\\': out.add("\\\\"); break;
      case '\n': out.add("\\n"); break;
      case '\r': out.add("\\r"); break;
      case '\t': out.add("\\t"); break;
      case '\f': out.add("\\f"); break;
      case '\b': out.add("\\b"); break;
      default:
        if (c < 0x10000) {
          out.add(unicode_escape(c));
        } else {  // a pair of surrogates
          out.add(unicode_escape(0xD800 + ((c - 0x10000) >> 10)));
          out.add(unicode_escape(0xDC00 + ((c - 0x10000) & 0x3FF)));
        }
    }
  }
  out.add(s.substr(plain));
  out.add('"');
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& rt, const JsonStyle& style, TextBuilder& out) : rt_(rt), style_(style), out_(out) {}

  void write(const Value& value, int level) {
    const Runtime::DepthGuard guard(rt_);
    rt_.step();
    switch (value.kind()) {
      case Kind::kNone: out_.add("null"); return;
      case Kind::kBool: out_.add(value.as_integer() ? "true" : "false"); return;
      case Kind::kInt: out_.add(std::to_string(value.as_integer())); return;
      case Kind::kFloat: out_.add(json_float(value.as_double())); return;
      case Kind::kString: print_json_string(rt_, value.text(), style_.ensure_ascii, out_); return;
      case Kind::kList:
      case Kind::kTuple: write_list(value.items(), level); return;
      case Kind::kDict: write_dict(value.as<DictObject>(), level); return;
      case Kind::kUndefined:
        rt_.error("an undefined value cannot be written as JSON", "", value.as<UndefinedObject>().message);
      default: rt_.error(described_type(value) + " cannot be written as JSON");
    }
  }

 private:
  void separate(bool first, int level) {
    if (!first) out_.add(style_.item_separator);
    new_line(level);
  }
  void new_line(int level) {
    if (!style_.indented) return;
    out_.add('\n');
    out_.repeat(style_.indent, level);
  }

  void write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) return out_.add("[]");
    out_.add('[');
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i == 0, level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_.add(']');
  }

  void write_dict(const DictObject& dict, int level) {
    if (dict.items.empty()) return out_.add("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : dict.items) order.push_back(&item);
    if (style_.sort_keys) {
      stable_sort(order, [&](const auto* a, const auto* b) { return ordered(rt_, "<", a->first, b->first); });
    }
    out_.add('{');
    bool first = true;
    for (const auto* item : order) {
      separate(first, level + 1);
      first = false;
      write_key(item->first);
      out_.add(style_.key_separator);
      write(item->second, level + 1);
    }
    new_line(level);
    out_.add('}');
  }

  void write_key(const Value& key) {
    std::string name;
    switch (key.kind()) {
      case Kind::kString: return print_json_string(rt_, key.text(), style_.ensure_ascii, out_);
      case Kind::kNone: name = "null"; break;
      case Kind::kBool: name = key.as_integer() ? "true" : "false"; break;
      case Kind::kInt: name = std::to_string(key.as_integer()); break;
      case Kind::kFloat: name = json_float(key.as_double()); break;
      default: rt_.error(described_type(key) + " cannot be a key in JSON");
    }
    out_.add("\"" + name + "\"");
  }

  Runtime& rt_;
  const JsonStyle& style_;
  TextBuilder& out_;
};

}  // namespace

void print_json(Runtime& rt, const Value& value, const JsonStyle& style, TextBuilder& out) {
  JsonPrinter(rt, style, out).write(value, 0);
}

}  // namespace doppler::jinja
