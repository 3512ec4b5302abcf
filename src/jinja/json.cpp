// json.dumps, as Hugging Face's tojson filter calls it.
#include <algorithm>
#include <cmath>

#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/sort.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

std::string unicode_escape(char32_t unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
  return out;
}

void print_json_string(Runtime& rt, std::string_view s, bool ensure_ascii, TextBuilder& out) {
  rt.characters(s.size());
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
    const Runtime::Nest nest(rt_);
    rt_.step();
    switch (value.kind()) {
      case Kind::kNone: out_.add("null"); return;
      case Kind::kBool: out_.add(value.whole() ? "true" : "false"); return;
      case Kind::kInt: out_.add(std::to_string(value.whole())); return;
      case Kind::kFloat: out_.add(json_float(value.number())); return;
      case Kind::kString: print_json_string(rt_, value.text(), style_.ensure_ascii, out_); return;
      case Kind::kList:
      case Kind::kTuple: write_list(value.items(), level); return;
      case Kind::kDict: write_dict(value.as<DictObject>(), level); return;
      case Kind::kUndefined:
        rt_.error("an undefined value cannot be written as JSON", "", value.as<UndefinedObject>().message);
      default: rt_.error(a_type(value) + " cannot be written as JSON");
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
      case Kind::kBool: name = key.whole() ? "true" : "false"; break;
      case Kind::kInt: name = std::to_string(key.whole()); break;
      case Kind::kFloat: name = json_float(key.number()); break;
      default: rt_.error(a_type(key) + " cannot be a key in JSON");
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
