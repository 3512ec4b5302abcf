// Methods of str that look at it or change its letters.
#include <algorithm>

#include "jinja/convert.h"
#include "jinja/format.h"
#include "jinja/methods.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

// Methods without arguments that give a string.
template <std::string (*F)(std::string_view)>
Value mapped(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  rt.characters(self.text().size());
  return rt.string(F(self.text()), self.is_markup());
}

template <bool kLeft, bool kRight>
Value strip(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value chars = bind(rt, arguments, "strip", {"/chars"}, 0)[0];
  return strip_text(rt, self, chars, kLeft, kRight);
}

// s[start:end] for methods that take a range; nothing where it is beyond the end.
struct Window {
  bool valid = false;
  size_t begin = 0, end = 0;  // bytes
  int64_t first = 0;          // character at begin
};

Window window_of(Runtime& rt, const Value& self, const Value& start, const Value& end) {
  const std::string& s = self.text();
  if (start.is_missing() && end.is_missing()) return {true, 0, s.size(), 0};
  const int64_t n = length(rt, self);
  const auto place = [&](int64_t at) { return at < 0 ? std::max<int64_t>(at + n, 0) : at; };
  const int64_t first = place(whole_or(rt, start, 0, "the start of a search"));
  const int64_t last = std::min(place(whole_or(rt, end, n, "the end of a search")), n);
  if (first > n || first > last) return {};
  rt.characters(s.size());
  return {true, text::offset(s, first), text::offset(s, last), first};
}

template <bool kAtEnd>
Value affixed(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, kAtEnd ? "endswith" : "startswith", {"/affix", "/start", "/end"}, 1);
  const Window window = window_of(rt, self, args[1], args[2]);
  if (args[0].is_undefined()) rt.use_of(args[0]);
  const std::string_view s = std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = need_text(rt, affix, "what a string starts or ends with");
    rt.work(std::min(wanted.size(), s.size()));
    return window.valid && (kAtEnd ? s.ends_with(wanted) : s.starts_with(wanted));
  };
  if (!args[0].is(Kind::kTuple)) return Value::boolean(matches(args[0]));
  for (const Value& affix : args[0].items()) {
    rt.step();
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kLast, bool kMustBeThere>
Value find(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "find", {"/sub", "/start", "/end"}, 1);
  const std::string& wanted = need_text(rt, args[0], "what find() looks for");
  const Window window = window_of(rt, self, args[1], args[2]);
  const std::string_view s = std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  rt.work(s.size() + wanted.size());
  size_t at = std::string_view::npos;
  if (window.valid) at = kLast ? text::rfind(s, wanted) : text::find(s, wanted);
  if (at != std::string_view::npos) {
    rt.characters(at);
    return Value::integer(window.first + text::length(s.substr(0, at)));
  }
  if (kMustBeThere) rt.error("the substring that index() looks for is not there");
  return Value::integer(-1);
}

Value count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "count", {"/sub", "/start", "/end"}, 1);
  const std::string& wanted = need_text(rt, args[0], "what count() counts");
  const Window window = window_of(rt, self, args[1], args[2]);
  if (!window.valid) return Value::integer(0);
  const std::string_view s = std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  if (wanted.empty()) {
    rt.characters(s.size());
    return Value::integer(text::length(s) + 1);
  }
  rt.work(s.size());
  int64_t hits = 0;
  for (size_t at = text::find(s, wanted); at != std::string_view::npos;
       at = text::find(s, wanted, at + wanted.size())) {
    rt.step();
    ++hits;
  }
  return Value::integer(hits);
}

Value replace(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "replace", {"/old", "/new", "/count"}, 2);
  if (self.is_markup()) rt.unsupported("replace() on a string that is marked safe");
  return replace_text(rt, self.text(), need_text(rt, args[0], "what replace() looks for"),
                      need_text(rt, args[1], "what replace() puts in"),
                      whole_or(rt, args[2], -1, "the count of replace()"));
}

template <bool kSuffix>
Value remove_affix(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value affix = bind(rt, arguments, kSuffix ? "removesuffix" : "removeprefix", {"/affix"}, 1)[0];
  std::string_view s = self.text();
  const std::string& wanted = need_text(rt, affix, "what is removed");
  if (kSuffix ? s.ends_with(wanted) : s.starts_with(wanted)) {
    kSuffix ? s.remove_suffix(wanted.size()) : s.remove_prefix(wanted.size());
  }
  return rt.string(std::string(s), self.is_markup());
}

// Where the padding goes: both sides, right, left.
enum class Pad { kBoth, kRight, kLeft };

template <Pad kWhere>
Value pad(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "", {"/width", "/fillchar"}, 1);
  if (self.is_markup() && !args[1].is_missing()) rt.unsupported("padding a string that is marked safe");
  const int64_t width = need_whole(rt, args[0], "a width");
  const std::string fill = args[1].is_missing() ? " " : need_text(rt, args[1], "the fill character");
  if (text::length(fill) != 1) rt.error("the fill character must be one character");
  const std::string& s = self.text();
  const int64_t n = length(rt, self);
  const int64_t padding = width > n ? width - n : 0;
  const int64_t left = kWhere == Pad::kLeft ? padding : kWhere == Pad::kRight ? 0 : padding / 2 + (padding & width & 1);
  TextBuilder out(rt);
  out.repeat(fill, left);
  out.add(s);
  out.repeat(fill, padding - left);
  return out.finish(self.is_markup());
}

Value zfill(Runtime& rt, const Value& self, const Arguments& arguments) {
  const int64_t width = need_whole(rt, bind(rt, arguments, "zfill", {"/width"}, 1)[0], "a width");
  std::string_view s = self.text();
  const int64_t n = length(rt, self);
  TextBuilder out(rt);
  if (width > n && !s.empty() && (s[0] == '-' || s[0] == '+')) {
    out.add(s[0]);
    s.remove_prefix(1);
  }
  if (width > n) out.repeat("0", width - n);
  out.add(s);
  return out.finish(self.is_markup());
}

// All characters are of a class, and there is at least one.
template <bool (*F)(char32_t)>
Value all_are(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  const std::string& s = self.text();
  rt.characters(s.size());
  for (size_t at = 0; at < s.size();) {
    if (!F(text::decode(s, at))) return Value::boolean(false);
  }
  return Value::boolean(!s.empty());
}

template <bool kUpper>
Value is_case(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  rt.characters(self.text().size());
  return Value::boolean(has_case(self.text(), kUpper));
}

bool is_ascii(char32_t c) { return c < 0x80; }

Value isascii(Runtime& rt, const Value& self, const Arguments& arguments) {
  return Value::boolean(self.text().empty() || truth(all_are<is_ascii>(rt, self, arguments)));
}

Value format(Runtime& rt, const Value& self, const Arguments& arguments) { return format_braces(rt, self, arguments); }

constexpr Method kMethods[] = {
    {"capitalize", mapped<text::capitalize>},
    {"center", pad<Pad::kBoth>},
    {"count", count},
    {"endswith", affixed<true>},
    {"find", find<false, false>},
    {"format", format},
    {"index", find<false, true>},
    {"isalnum", all_are<text::is_alphanumeric>},
    {"isalpha", all_are<text::is_letter>},
    {"isascii", isascii},
    {"isdecimal", all_are<text::is_decimal>},
    {"isdigit", all_are<text::is_digit>},
    {"islower", is_case<false>},
    {"isspace", all_are<text::is_space>},
    {"isupper", is_case<true>},
    {"ljust", pad<Pad::kRight>},
    {"lower", mapped<text::lower>},
    {"lstrip", strip<true, false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", pad<Pad::kLeft>},
    {"rstrip", strip<false, true>},
    {"startswith", affixed<false>},
    {"strip", strip<true, true>},
    {"swapcase", mapped<text::swapcase>},
    {"title", mapped<text::title>},
    {"upper", mapped<text::upper>},
    {"zfill", zfill},
};

}  // namespace

bool has_case(std::string_view s, bool upper) {
  bool cased = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = text::decode(s, at);
    if (text::is_title(c) || (upper ? text::is_lower(c) : text::is_upper(c))) return false;
    cased = cased || (upper ? text::is_upper(c) : text::is_lower(c));
  }
  return cased;
}

Value strip_text(Runtime& rt, const Value& string, const Value& chars, bool left, bool right) {
  const std::string& s = string.text();
  const bool spaces = chars.is_missing() || chars.is_none();
  const std::string_view kept =
      spaces ? text::strip(s, left, right) : text::strip(s, need_text(rt, chars, "what is stripped"), left, right);
  rt.characters((s.size() - kept.size()) * (spaces ? 1 : 1 + chars.text().size() / 8));
  return rt.string(std::string(kept), string.is_markup());
}

Value replace_text(Runtime& rt, std::string_view s, std::string_view old, std::string_view by, int64_t count) {
  rt.work(s.size());
  TextBuilder out(rt);
  size_t at = 0;
  for (; count != 0; count -= count > 0) {
    rt.step();
    if (old.empty()) {  // between all characters, and at both ends
      out.add(by);
      if (at >= s.size()) return out.finish();
      const size_t begin = at;
      text::decode(s, at);
      out.add(s.substr(begin, at - begin));
      continue;
    }
    const size_t hit = text::find(s, old, at);
    if (hit == std::string_view::npos) break;
    out.add(s.substr(at, hit - at));
    out.add(by);
    at = hit + old.size();
  }
  out.add(s.substr(at));
  return out.finish();
}

const Method* find_string_method(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
  }
  return find_split_method(name);
}

}  // namespace doppler::jinja
