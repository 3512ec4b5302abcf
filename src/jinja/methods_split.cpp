// Methods of str that take it apart or put strings together.
#include <algorithm>
#include <limits>

#include "jinja/convert.h"
#include "jinja/methods.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

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
  rt.characters(self.text().size());
  int64_t most = args[1].is_missing() ? -1 : need_whole(rt, args[1], "maxsplit");
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
  const std::string& separator = need_text(rt, args[0], "the separator");
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
  rt.characters(self.text().size());
  Pieces pieces(rt, self);
  LineReader lines(self.text());
  for (std::string_view line, with_end; lines.next(line, with_end);) {
    pieces.add(truth_or(keep, false) ? with_end : line);
  }
  return pieces.finish(false);
}

template <bool kLast>
Value partition(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value sep = bind(rt, arguments, kLast ? "rpartition" : "partition", {"/sep"}, 1)[0];
  const std::string& separator = need_text(rt, sep, "the separator");
  if (separator.empty()) rt.error("the separator of partition() is empty");
  const std::string_view s = self.text();
  rt.work(s.size());
  const size_t hit = kLast ? text::rfind(s, separator) : text::find(s, separator);
  const bool markup = self.is_markup();
  const Value nothing = rt.string("", markup), whole = rt.string(std::string(s), markup);
  if (hit == std::string_view::npos) {
    return kLast ? rt.tuple({nothing, nothing, whole}) : rt.tuple({whole, nothing, nothing});
  }
  return rt.tuple({rt.string(std::string(s.substr(0, hit)), markup), rt.string(separator, markup),
                   rt.string(std::string(s.substr(hit + separator.size())), markup)});
}

Value join(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value items = bind(rt, arguments, "join", {"/iterable"}, 1)[0];
  if (self.is_markup()) rt.unsupported("join() on a string that is marked safe");
  TextBuilder out(rt);
  Cursor cursor(rt, items);
  bool first = true;
  for (Value item; cursor.next(item);) {
    if (!first) out.add(self.text());
    first = false;
    out.add(need_text(rt, item, "each item of join()"));
  }
  return out.finish();
}

constexpr Method kMethods[] = {
    {"join", join},          {"partition", partition<false>}, {"rpartition", partition<true>},
    {"rsplit", split<true>}, {"split", split<false>},         {"splitlines", splitlines},
};

}  // namespace

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

const Method* find_split_method(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace doppler::jinja
