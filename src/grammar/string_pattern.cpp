#include "grammar/string_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {
namespace {

constexpr uint64_t kEndless = StringPattern::kEndless;
constexpr int kDeepestPattern = 100;
using Ranges = std::vector<CodeRange>;

const Ranges kDigits = {{'0', '9'}};
const Ranges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const Ranges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

Ranges others(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  Ranges out;
  char32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= 0x10FFFF) out.push_back({next, 0x10FFFF});
  return out;
}

uint64_t plus(uint64_t a, uint64_t b) { return a == kEndless || b == kEndless ? kEndless : a + b; }
uint64_t times(uint64_t a, uint64_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kEndless || b == kEndless || a > kEndless / b ? kEndless : a * b;
}

class PatternReader {
 public:
  PatternReader(std::string_view pattern, JsonText& text, Expressions& expressions, const std::string& where)
      : pattern_(pattern), text_(text), e_(expressions), where_(where) {}

  StringPattern read() {
    StringPattern whole = alternatives(0);
    if (at_ < pattern_.size()) unsupported("a ) without its (");
    return whole;
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool ended() const { return at_ >= pattern_.size(); }
  bool take(std::string_view word) {
    if (!pattern_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail({.code = ErrorCode::kUnsupported,
          .what = fmt::format("{} is not supported in a pattern", what),
          .where = where_,
          .got = fmt::format("{} (character {})", std::string(pattern_), at_ + 1)});
  }

  StringPattern alternatives(int depth) {
    if (depth > kDeepestPattern) unsupported("so deep a nesting");
    StringPattern result = alternative(depth);
    std::vector<Expression> parts = {result.content};
    while (take("|")) {
      const StringPattern next = alternative(depth);
      parts.push_back(next.content);
      result.least = std::min(result.least, next.least);
      result.most = std::max(result.most, next.most);
      result.unit = Expressions::kNever;
    }
    result.content = e_.any_of(std::move(parts));
    return result;
  }

  StringPattern alternative(int depth) {
    const bool top = depth == 0, from_start = top && take("^");
    bool to_end = false;
    std::vector<Expression> parts;
    StringPattern result{.content = Expressions::kEmpty};
    const StringPattern anything{
        .content = e_.repeat(text_.any_character(), 0, Expressions::kForever), .least = 0, .most = kEndless};
    size_t pieces = 0;
    const auto append = [&](const StringPattern& piece) {
      parts.push_back(piece.content);
      result.least = plus(result.least, piece.least);
      result.most = plus(result.most, piece.most);
      result.unit = pieces++ == 0 ? piece.unit : Expressions::kNever;
    };
    if (top && !from_start) append(anything);
    while (!ended() && peek() != '|' && peek() != ')') {
      if (take("$")) {
        if (!top || (!ended() && peek() != '|')) unsupported("$ in the midst");
        to_end = true;
        break;
      }
      if (peek() == '^') unsupported("^ in the midst");
      append(repeated(atom(depth)));
    }
    if (top && !to_end) append(anything);
    result.content = e_.sequence(parts);
    return result;
  }

  StringPattern repeated(StringPattern piece) {
    uint64_t least = 1, most = 1;
    if (take("*")) {
      least = 0, most = kEndless;
    } else if (take("+")) {
      most = kEndless;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      least = most = number();
      if (take(",")) most = peek() == '}' ? kEndless : number();
      if (!take("}") || least > most) unsupported("this repetition");
    } else {
      return piece;
    }
    take("?");  // lazy or not, the same strings match
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') unsupported("a repetition of a repetition");
    const bool one = piece.unit != Expressions::kNever && piece.least == 1 && piece.most == 1;
    return {.content = e_.repeat(piece.content, static_cast<uint32_t>(least),
                                 most == kEndless ? Expressions::kForever : static_cast<uint32_t>(most)),
            .least = times(piece.least, least),
            .most = times(piece.most, most),
            .unit = one ? piece.unit : Expressions::kNever};
  }

  uint64_t number() {
    uint64_t value = 0;
    if (peek() < '0' || peek() > '9') unsupported("{ without a number");
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + static_cast<uint64_t>(pattern_[at_++] - '0');
      if (value > 1'000'000'000) unsupported("so large a repetition");
    }
    return value;
  }

  StringPattern one_of(const Ranges& ranges) {
    const Expression unit = text_.character(ranges);
    return {.content = unit, .least = 1, .most = 1, .unit = unit};
  }

  StringPattern atom(int depth) {
    if (take("(")) {
      if (take("?")) {
        if (take("<")) {
          if (peek() == '=' || peek() == '!') unsupported("a look behind, (?<= or (?<!,");
          while (!ended() && peek() != '>') ++at_;
          if (!take(">")) unsupported("a group's name without >");
        } else if (!take(":")) {
          unsupported(peek() == '=' || peek() == '!' ? "a look ahead, (?= or (?!," : "this kind of group");
        }
      }
      StringPattern group = alternatives(depth + 1);
      if (!take(")")) unsupported("a ( without its )");
      return group;
    }
    if (take("[")) return one_of(char_class());
    if (take(".")) return one_of(others(kLineEnds));
    const char c = peek();
    if (c == '*' || c == '+' || c == '?' || c == '{' || c == '}' || c == ']') {
      unsupported(fmt::format("{} without something before it", c));
    }
    Ranges ranges;
    character(ranges, /*in_class=*/false);
    return one_of(ranges);
  }

  Ranges char_class() {
    const bool negated = take("^");
    Ranges ranges;
    while (!take("]")) {
      if (ended()) unsupported("a [ without its ]");
      Ranges first;
      character(first, true);
      const bool single = first.size() == 1 && first[0].first == first[0].last;
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < pattern_.size()) {
        ++at_;
        Ranges last;
        character(last, true);
        if (!single || last.size() != 1 || last[0].first != last[0].last || first[0].first > last[0].first) {
          unsupported("this range of characters");
        }
        first[0].last = last[0].last;
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    return negated ? others(std::move(ranges)) : ranges;
  }

  // One character, or a class that an escape names.
  void character(Ranges& out, bool in_class) {
    const auto one = [&](char32_t code) { out = {{code, code}}; };
    if (!take("\\")) {
      uint32_t length = 0;
      one(read_valid_utf8(pattern_, at_, length));
      at_ += length;
      return;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'd': out = kDigits; return;
      case 'D': out = others(kDigits); return;
      case 'w': out = kWord; return;
      case 'W': out = others(kWord); return;
      case 's': out = kSpaces; return;
      case 'S': out = others(kSpaces); return;
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'v': return one('\v');
      case 'f': return one('\f');
      case 'b':
        if (in_class) return one('\b');
        unsupported("\\b, the border of a word,");
      case '0':
        if (peek() < '0' || peek() > '9') return one(0);
        unsupported("an octal escape");
      case 'x': return one(hex(2));
      case 'u': return one(unicode());
      default: break;
    }
    if ((c >= '0' && c <= '9') || c == 'k') unsupported("a reference back to a group");
    if ((c | 0x20) == 'p') unsupported("a class of characters by property, \\p,");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\0' || static_cast<signed char>(c) < 0) {
      unsupported(fmt::format("the escape \\{}", c > 0 ? std::string(1, c) : ""));
    }
    one(static_cast<char32_t>(c));
  }

  char32_t hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek(), low = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        code = code * 16 + static_cast<char32_t>(c - '0');
      } else if (low >= 'a' && low <= 'f') {
        code = code * 16 + static_cast<char32_t>(low - 'a' + 10);
      } else {
        unsupported("an escape that is cut short");
      }
    }
    return code;
  }

  char32_t unicode() {
    char32_t code = 0;
    if (take("{")) {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos || close == at_ || close - at_ > 6) unsupported("this escape \\u{…}");
      code = hex(static_cast<int>(close - at_));
      ++at_;
    } else {
      code = hex(4);
      if (code >= 0xD800 && code < 0xDC00 && take("\\u")) {
        const char32_t low = hex(4);
        if (low < 0xDC00 || low > 0xDFFF) unsupported("half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) unsupported("an escape that names no character");
    return code;
  }

  std::string_view pattern_;
  JsonText& text_;
  Expressions& e_;
  const std::string& where_;
  size_t at_ = 0;
};

#define DOPPLER_DATE                                                                                                  \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-" \
  "9]|"                                                                                                               \
  "2[0-8]))"
#define DOPPLER_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define DOPPLER_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define DOPPLER_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,29}[A-Za-z0-9])?"

// Each matches some of what its format allows and nothing else: no 29th of February, no leap second.
constexpr struct {
  const char *format, *pattern;
} kFormats[] = {
    {"date", "^" DOPPLER_DATE "$"},
    {"time", "^" DOPPLER_TIME "$"},
    {"date-time", "^" DOPPLER_DATE "T" DOPPLER_TIME "$"},
    {"duration", "^P(?:[0-9]{1,6}[YMWD]|T[0-9]{1,6}[HMS])$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"ipv4", "^" DOPPLER_BYTE "(?:\\." DOPPLER_BYTE "){3}$"},
    {"ipv6", "^(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
    {"hostname", "^" DOPPLER_LABEL "(?:\\." DOPPLER_LABEL "){0,5}$"},
    {"email", "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,30})?@(?:" DOPPLER_LABEL "\\.){1,4}" DOPPLER_LABEL "$"},
    {"uri", "^https?://" DOPPLER_LABEL "(?:\\." DOPPLER_LABEL
            "){0,5}(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*(?:\\?[A-Za-z0-9._~=&+-]*)?$"},
};
#undef DOPPLER_DATE
#undef DOPPLER_TIME
#undef DOPPLER_BYTE
#undef DOPPLER_LABEL

}  // namespace

StringPattern read_string_pattern(std::string_view pattern, JsonText& text, Expressions& expressions,
                                  const std::string& where) {
  return PatternReader(pattern, text, expressions, where).read();
}

const char* pattern_of_format(std::string_view format) {
  const auto found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto& each) { return format == each.format; });
  return found == std::end(kFormats) ? nullptr : found->pattern;
}

}  // namespace doppler
