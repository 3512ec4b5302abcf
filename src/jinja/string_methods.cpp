// The methods of str.
#include <algorithm>
#include <limits>

#include "jinja/builtins.h"
#include "jinja/operations.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

// Methods without arguments that give a string.
template <std::string (*F)(std::string_view)>
Value mapped_string(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  rt.count_characters(self.text().size());
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
  const int64_t first = place(integer_or(rt, start, 0, "the start of a search"));
  const int64_t last = std::min(place(integer_or(rt, end, n, "the end of a search")), n);
  if (first > n || first > last) return {};
  rt.count_characters(s.size());
  return {true, text::offset(s, first), text::offset(s, last), first};
}

template <bool kAtEnd>
Value affixed(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, kAtEnd ? "endswith" : "startswith", {"/affix", "/start", "/end"}, 1);
  const Window window = window_of(rt, self, args[1], args[2]);
  if (args[0].is_undefined()) rt.fail_undefined(args[0]);
  const std::string_view s = std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = need_string(rt, affix, "what a string starts or ends with");
    rt.count_bytes(std::min(wanted.size(), s.size()));
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
  const std::string& wanted = need_string(rt, args[0], "what find() looks for");
  const Window window = window_of(rt, self, args[1], args[2]);
  const std::string_view s = std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  rt.count_bytes(s.size() + wanted.size());
  size_t at = std::string_view::npos;
  if (window.valid) at = kLast ? text::rfind(s, wanted) : text::find(s, wanted);
  if (at != std::string_view::npos) {
    rt.count_characters(at);
    return Value::integer(window.first + text::length(s.substr(0, at)));
  }
  if (kMustBeThere) rt.error("the substring that index() looks for is not there");
  return Value::integer(-1);
}

Value count_in(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "count", {"/sub", "/start", "/end"}, 1);
  const std::string& wanted = need_string(rt, args[0], "what count() counts");
  const Window window = window_of(rt, self, args[1], args[2]);
  if (!window.valid) return Value::integer(0);
  const std::string_view s = std::string_view(self.text()).substr(window.begin, window.end - window.begin);
  if (wanted.empty()) {
    rt.count_characters(s.size());
    return Value::integer(text::length(s) + 1);
  }
  rt.count_bytes(s.size());
  int64_t hits = 0;
  for (size_t at = text::find(s, wanted); at != std::string_view::npos;
       at = text::find(s, wanted, at + wanted.size())) {
    rt.step();
    ++hits;
  }
  return Value::integer(hits);
}

Value replace_in(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "replace", {"/old", "/new", "/count"}, 2);
  if (self.is_markup()) rt.unsupported("replace() on a string that is marked safe");
  return replace_text(rt, self.text(), need_string(rt, args[0], "what replace() looks for"),
                      need_string(rt, args[1], "what replace() puts in"),
                      integer_or(rt, args[2], -1, "the count of replace()"));
}

template <bool kSuffix>
Value remove_affix(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value affix = bind(rt, arguments, kSuffix ? "removesuffix" : "removeprefix", {"/affix"}, 1)[0];
  std::string_view s = self.text();
  const std::string& wanted = need_string(rt, affix, "what is removed");
  if (kSuffix ? s.ends_with(wanted) : s.starts_with(wanted)) {
    kSuffix ? s.remove_suffix(wanted.size()) : s.remove_prefix(wanted.size());
  }
  return rt.string(std::string(s), self.is_markup());
}

// All characters are of a class, and there is at least one.
template <bool (*F)(char32_t)>
Value all_are(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  const std::string& s = self.text();
  rt.count_characters(s.size());
  for (size_t at = 0; at < s.size();) {
    if (!F(text::decode(s, at))) return Value::boolean(false);
  }
  return Value::boolean(!s.empty());
}

template <bool kUpper>
Value is_case(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  rt.count_characters(self.text().size());
  return Value::boolean(has_case(self.text(), kUpper));
}

Value format_method(Runtime& rt, const Value& self, const Arguments& arguments) {
  return format_braces(rt, self, arguments);
}

class Pieces {
 public:
  Pieces(Runtime& rt, const Value& self) : rt_(rt), list_(rt), markup_(self.is_markup()) {}
  void add(std::string_view piece) { list_.add(rt_.string(std::string(piece), markup_)); }
  Value finish(bool reversed) {
    if (reversed) std::reverse(list_.items().begin(), list_.items().end());
    return list_.finish();
  }

 private:
  Runtime& rt_;
  ListBuilder list_;
  const bool markup_;
};

void split_at_spaces(std::string_view s, int64_t most, Pieces& out) {
  s = text::strip(s, true, false);
  for (; !s.empty() && most > 0; --most) {
    size_t end = 0;
    while (end < s.size()) {
      size_t next = end;
      if (text::is_space(text::decode(s, next))) break;
      end = next;
    }
    out.add(s.substr(0, end));
    s = text::strip(s.substr(end), true, false);
  }
  if (!s.empty()) out.add(s);
}

void rsplit_at_spaces(std::string_view s, int64_t most, Pieces& out) {
  s = text::strip(s, false, true);
  for (; !s.empty() && most > 0; --most) {
    size_t begin = s.size();
    while (begin > 0) {
      size_t at = begin - 1;
      while (at > 0 && (static_cast<unsigned char>(s[at]) & 0xC0) == 0x80) --at;
      size_t next = at;
      if (text::is_space(text::decode(s, next))) break;
      begin = at;
    }
    out.add(s.substr(begin));
    s = text::strip(s.substr(0, begin), false, true);
  }
  if (!s.empty()) out.add(s);
}

void split_at(std::string_view s, std::string_view separator, int64_t most, Pieces& out) {
  for (; most > 0; --most) {
    const size_t hit = text::find(s, separator);
    if (hit == std::string_view::npos) break;
    out.add(s.substr(0, hit));
    s.remove_prefix(hit + separator.size());
  }
  out.add(s);
}

template <bool kFromRight>
Value split(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, kFromRight ? "rsplit" : "split", {"sep", "maxsplit"}, 0);
  rt.count_characters(self.text().size());
  int64_t most = args[1].is_missing() ? -1 : need_integer(rt, args[1], "maxsplit");
  const bool limited = most >= 0;
  if (!limited) most = std::numeric_limits<int64_t>::max();
  Pieces pieces(rt, self);
  if (args[0].is_missing() || args[0].is_none()) {
    if (kFromRight && limited) {
      rsplit_at_spaces(self.text(), most, pieces);
      return pieces.finish(true);
    }
    split_at_spaces(self.text(), most, pieces);
    return pieces.finish(false);
  }
  const std::string& separator = need_string(rt, args[0], "the separator");
  if (separator.empty()) rt.error("the separator of split() is empty");
  if (kFromRight && limited) {
    // From the right is from the left of the reversed string: the cuts may differ where separators overlap.
    const std::string backwards(self.text().rbegin(), self.text().rend()), sep(separator.rbegin(), separator.rend());
    std::string_view s = backwards;
    size_t end = self.text().size();
    for (; most > 0; --most) {
      const size_t hit = text::find(s, sep);
      if (hit == std::string_view::npos) break;
      pieces.add(std::string_view(self.text()).substr(end - hit, hit));
      end -= hit + sep.size();
      s.remove_prefix(hit + sep.size());
    }
    pieces.add(std::string_view(self.text()).substr(0, end));
    return pieces.finish(true);
  }
  if (kFromRight) {  // unlimited, but still from the right
    Arguments again{{args[0], Value::integer(std::numeric_limits<int64_t>::max())}, {}};
    return split<true>(rt, self, again);
  }
  split_at(self.text(), separator, most, pieces);
  return pieces.finish(false);
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Value splitlines(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value keep = bind(rt, arguments, "splitlines", {"keepends"}, 0)[0];
  rt.count_characters(self.text().size());
  Pieces pieces(rt, self);
  LineReader lines(self.text());
  for (std::string_view line, with_end; lines.next(line, with_end);) {
    pieces.add(truthy_or(keep, false) ? with_end : line);
  }
  return pieces.finish(false);
}

template <bool kLast>
Value partition(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value sep = bind(rt, arguments, kLast ? "rpartition" : "partition", {"/sep"}, 1)[0];
  const std::string& separator = need_string(rt, sep, "the separator");
  if (separator.empty()) rt.error("the separator of partition() is empty");
  const std::string_view s = self.text();
  rt.count_bytes(s.size());
  const size_t hit = kLast ? text::rfind(s, separator) : text::find(s, separator);
  const bool markup = self.is_markup();
  const Value nothing = rt.string("", markup), whole = rt.string(std::string(s), markup);
  if (hit == std::string_view::npos) {
    return kLast ? rt.tuple({nothing, nothing, whole}) : rt.tuple({whole, nothing, nothing});
  }
  return rt.tuple({rt.string(std::string(s.substr(0, hit)), markup), rt.string(separator, markup),
                   rt.string(std::string(s.substr(hit + separator.size())), markup)});
}

Value join_items(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value items = bind(rt, arguments, "join", {"/iterable"}, 1)[0];
  if (self.is_markup()) rt.unsupported("join() on a string that is marked safe");
  TextBuilder out(rt);
  Cursor cursor(rt, items);
  bool first = true;
  for (Value item; cursor.next(item);) {
    if (!first) out.add(self.text());
    first = false;
    out.add(need_string(rt, item, "each item of join()"));
  }
  return out.finish();
}

constexpr Builtin kMethods[] = {
    {"capitalize", mapped_string<text::capitalize>},
    {"count", count_in},
    {"endswith", affixed<true>},
    {"find", find<false, false>},
    {"format", format_method},
    {"index", find<false, true>},
    {"isalnum", all_are<text::is_alphanumeric>},
    {"isalpha", all_are<text::is_letter>},
    {"isdigit", all_are<text::is_digit>},
    {"islower", is_case<false>},
    {"isspace", all_are<text::is_space>},
    {"isupper", is_case<true>},
    {"join", join_items},
    {"lower", mapped_string<text::lower>},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_in},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", affixed<false>},
    {"strip", strip<true, true>},
    {"title", mapped_string<text::title>},
    {"upper", mapped_string<text::upper>},
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
      spaces ? text::strip(s, left, right) : text::strip(s, need_string(rt, chars, "what is stripped"), left, right);
  rt.count_characters((s.size() - kept.size()) * (spaces ? 1 : 1 + chars.text().size() / 8));
  return rt.string(std::string(kept), string.is_markup());
}

Value replace_text(Runtime& rt, std::string_view s, std::string_view old, std::string_view by, int64_t count) {
  rt.count_bytes(s.size());
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

bool LineReader::next(std::string_view& line, std::string_view& with_end) {
  if (s_.empty()) return false;
  size_t at = 0, end = s_.size();
  while (at < s_.size()) {
    const size_t begin = at;
    const char32_t c = text::decode(s_, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < s_.size() && s_[at] == '\n') ++at;
    end = begin;
    break;
  }
  line = s_.substr(0, end);
  with_end = s_.substr(0, at);
  s_.remove_prefix(at);
  return true;
}

std::span<const Builtin> string_methods() { return kMethods; }

}  // namespace doppler::jinja
