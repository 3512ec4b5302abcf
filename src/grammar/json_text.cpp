#include "grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {
namespace {

constexpr CodeRange kPlain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};  // but for " and \, and controls

}  // namespace

Expression JsonText::space() {
  if (!space_) {
    const Expression indent = e_.repeat(e_.character({{' ', ' '}, {'\t', '\t'}}), 0, 20);
    const Rule rule = e_.declare("white space");
    e_.define(rule, e_.any_of({Expressions::kEmpty, e_.text(" "), e_.sequence({e_.text("\n"), indent})}));
    space_ = e_.call(rule);
  }
  return *space_;
}

Expression JsonText::any_character() {
  const Expression hex = e_.character({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const Expression d = e_.character({{'d', 'd'}, {'D', 'D'}});
  const Expression simple =
      e_.character({{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}});
  const Expression one = e_.sequence(
      {e_.text("u"), e_.any_of({e_.sequence({e_.character({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}),
                                             hex, hex, hex}),
                                e_.sequence({d, e_.character({{'0', '7'}}), hex, hex})})});
  const Expression pair = e_.sequence({e_.text("u"), d, e_.character({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex, hex,
                                       e_.text("\\u"), d, e_.character({{'c', 'f'}, {'C', 'F'}}), hex, hex});
  return e_.any_of({e_.character({std::begin(kPlain), std::end(kPlain)}),
                    e_.sequence({e_.text("\\"), e_.any_of({simple, one, pair})})});
}

Expression JsonText::string() {
  if (!string_) {
    const Rule rule = e_.declare("string");
    e_.define(rule, quoted(e_.repeat(any_character(), 0, kForever)));
    string_ = e_.call(rule);
  }
  return *string_;
}

Expression JsonText::string(uint32_t least, uint32_t most) {
  if (least == 0 && most == kForever) return string();
  return e_.shared(quoted(e_.repeat(any_character(), least, most)), "string");
}

Expression JsonText::character(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> plain;
  std::vector<Expression> parts;
  for (const CodeRange& range : ranges) {
    for (const CodeRange& allowed : kPlain) {
      const CodeRange piece = {std::max(range.first, allowed.first), std::min(range.last, allowed.last)};
      if (piece.first <= piece.last) plain.push_back(piece);
    }
    for (const char32_t special : {U'"', U'\\'}) {
      if (range.first <= special && special <= range.last) {
        parts.push_back(e_.text(std::string("\\") + static_cast<char>(special)));
      }
    }
    for (char32_t c = range.first; c <= range.last && c < 0x20; ++c) {
      const std::string quoted_text = Json(std::string(1, static_cast<char>(c))).dump();
      parts.push_back(e_.text(quoted_text.substr(1, quoted_text.size() - 2)));
    }
  }
  parts.push_back(e_.character(std::move(plain)));
  return e_.any_of(std::move(parts));
}

Expression JsonText::string_but(const std::vector<std::string>& names) {
  std::vector<std::u32string> codes;
  for (const std::string& name : names) {
    std::u32string word;
    uint32_t length = 0;
    bool plain = true;
    for (size_t at = 0; at < name.size(); at += length) {
      word += read_valid_utf8(name, at, length);
      plain = plain && word.back() >= 0x20 && word.back() != '"' && word.back() != '\\';
    }
    if (plain) codes.push_back(std::move(word));  // any other cannot be written without escapes
  }
  return quoted(but(std::move(codes)));
}

Expression JsonText::but(std::vector<std::u32string> names) {
  if (!key_rest_) {
    const Rule rule = e_.declare("key");
    e_.define(rule, e_.repeat(e_.character({std::begin(kPlain), std::end(kPlain)}), 0, kForever));
    key_rest_ = e_.call(rule);
  }
  if (names.empty()) return *key_rest_;
  std::map<char32_t, std::vector<std::u32string>> by_first;
  bool has_empty = false;
  for (const std::u32string& name : names) {
    if (name.empty()) {
      has_empty = true;
    } else {
      by_first[name[0]].push_back(name.substr(1));
    }
  }
  std::vector<Expression> parts;
  if (!has_empty) parts.push_back(Expressions::kEmpty);
  std::vector<CodeRange> others;
  for (const CodeRange& range : kPlain) {
    char32_t next = range.first;
    for (auto it = by_first.lower_bound(range.first); it != by_first.end() && it->first <= range.last; ++it) {
      if (it->first > next) others.push_back({next, it->first - 1});
      next = it->first + 1;
    }
    if (next <= range.last) others.push_back({next, range.last});
  }
  parts.push_back(e_.sequence({e_.character(others), *key_rest_}));
  for (auto& [first, rest] : by_first)
    parts.push_back(e_.sequence({e_.character({{first, first}}), but(std::move(rest))}));
  return e_.any_of(std::move(parts));
}

Expression JsonText::digit_range(char first, char last) {
  return e_.character({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

Expression JsonText::digits(int least, int most) {
  return e_.repeat(digit_range('0', '9'), static_cast<uint32_t>(least), static_cast<uint32_t>(most));
}

Expression JsonText::same_length(std::string_view least, std::string_view most, bool behind_point) {
  if (least.empty()) return Expressions::kEmpty;
  const std::string_view low = least.substr(1), high = most.substr(1);
  const int rest = static_cast<int>(low.size());
  const std::string nines(low.size(), '9'), zeros(low.size(), '0');
  const auto behind = [&](std::string_view from, std::string_view to) {
    const Expression more = same_length(from, to, behind_point);
    return behind_point && from == zeros ? e_.optional(more) : more;
  };
  if (least[0] == most[0]) return e_.sequence({digit_range(least[0], least[0]), behind(low, high)});
  char first = least[0], last = most[0];
  std::vector<Expression> parts;
  if (low != zeros) {
    parts.push_back(e_.sequence({digit_range(first, first), behind(low, nines)}));
    ++first;
  }
  if (high != nines) {
    parts.push_back(e_.sequence({digit_range(last, last), behind(zeros, high)}));
    --last;
  }
  if (first <= last) {
    parts.push_back(e_.sequence({digit_range(first, last), digits(behind_point ? 0 : rest, rest)}));
  }
  return e_.any_of(std::move(parts));
}

Expression JsonText::natural(uint64_t least, uint64_t most) {
  std::vector<Expression> parts;
  const std::string last = std::to_string(most);
  while (least <= most) {
    const std::string low = std::to_string(least);
    const std::string high = low.size() < last.size() ? std::string(low.size(), '9') : last;
    parts.push_back(same_length(low, high));
    if (high.size() == last.size()) break;
    least = 1;
    for (size_t i = 0; i < low.size(); ++i) least *= 10;
  }
  return e_.any_of(std::move(parts));
}

Expression JsonText::integer(int64_t least, int64_t most) {
  least = std::max(least, -kLargest);
  most = std::min(most, kLargest);
  if (least > most) return Expressions::kNever;
  if (least == -kLargest && most == kLargest) {
    return e_.sequence(
        {e_.optional(e_.text("-")), e_.any_of({e_.text("0"), e_.sequence({digit_range('1', '9'), digits(0, 14)})})});
  }
  std::vector<Expression> parts;
  if (least < 0) {
    const auto nearest = static_cast<uint64_t>(std::max<int64_t>(1, -most));
    parts.push_back(e_.sequence({e_.text("-"), natural(nearest, static_cast<uint64_t>(-least))}));
  }
  if (most >= 0)
    parts.push_back(natural(static_cast<uint64_t>(std::max<int64_t>(0, least)), static_cast<uint64_t>(most)));
  return e_.any_of(std::move(parts));
}

Expression JsonText::number() {
  const Expression point = e_.sequence({e_.text("."), digits(1, 15)});
  const Expression exponent = e_.sequence(
      {e_.character({{'e', 'e'}, {'E', 'E'}}), e_.optional(e_.character({{'+', '+'}, {'-', '-'}})), digits(1, 2)});
  return e_.sequence({integer(-kLargest, kLargest), e_.optional(point), e_.optional(exponent)});
}

// Numbers with a point between two that are given in units of the last place.
Expression JsonText::fraction(uint64_t least, uint64_t most, int places) {
  uint64_t unit = 1;
  for (int i = 0; i < places; ++i) unit *= 10;
  const uint64_t low = least / unit, high = most / unit;
  const auto behind = [&](uint64_t scaled) { return fmt::format("{:0{}}", scaled % unit, places); };
  const std::string nines(static_cast<size_t>(places), '9'), zeros(static_cast<size_t>(places), '0');
  if (low == high) {
    return e_.sequence({e_.text(std::to_string(low) + "."), same_length(behind(least), behind(most), true)});
  }
  std::vector<Expression> parts = {
      e_.sequence({e_.text(std::to_string(low) + "."), same_length(behind(least), nines, true)}),
      e_.sequence({e_.text(std::to_string(high) + "."), same_length(zeros, behind(most), true)})};
  if (low + 1 < high) {
    // Up to 15 digits in all: a double keeps them apart from the whole numbers around them.
    const int free = std::max(1, 15 - static_cast<int>(std::to_string(high).size()));
    parts.push_back(e_.sequence({natural(low + 1, high - 1), e_.text("."), digits(1, free)}));
  }
  return e_.any_of(std::move(parts));
}

Expression JsonText::number(const std::optional<Bound>& least, const std::optional<Bound>& most,
                            const std::string& where) {
  constexpr int kMostPlaces = 9;
  int places = 3;
  double size = 1e6;
  for (const std::optional<Bound>& bound : {least, most}) {
    if (!bound) continue;
    const std::string text = fmt::format("{}", bound->value);
    const size_t point = text.find('.');
    if (point != std::string::npos) places = std::max(places, static_cast<int>(text.size() - point - 1));
    size = std::max(size, std::abs(bound->value) * 10);
    if (text.find('e') != std::string::npos || places > kMostPlaces || !(size * std::pow(10, places) <= 1e16)) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a bound of a number has too many digits",
            .where = where,
            .expected = "at most 9 places behind the point and 15 digits in all",
            .got = text});
    }
  }
  const double unit = std::pow(10, places);
  int64_t low = static_cast<int64_t>(-size * unit), high = static_cast<int64_t>(size * unit);
  if (least) low = std::llround(least->value * unit) + least->exclusive;
  if (most) high = std::llround(most->value * unit) - most->exclusive;
  if (low > high) return Expressions::kNever;
  const auto scale = static_cast<int64_t>(unit);
  const int64_t ceiling = low >= 0 ? (low + scale - 1) / scale : -(-low / scale);
  const int64_t floor = high >= 0 ? high / scale : -((-high + scale - 1) / scale);
  std::vector<Expression> parts = {integer(ceiling, floor)};
  if (low < 0) {
    const auto nearest = static_cast<uint64_t>(std::max<int64_t>(1, -high));
    parts.push_back(e_.sequence({e_.text("-"), fraction(nearest, static_cast<uint64_t>(-low), places)}));
  }
  if (high >= 0) {
    parts.push_back(fraction(static_cast<uint64_t>(std::max<int64_t>(0, low)), static_cast<uint64_t>(high), places));
  }
  return e_.any_of(std::move(parts));
}

Expression JsonText::separated(Expression part) { return e_.sequence({e_.text(","), space(), part}); }

Expression JsonText::bracketed(char open, Expression content, bool may_be_empty, char close) {
  Expression inside = e_.sequence({content, space()});
  if (may_be_empty) inside = e_.optional(inside);
  return e_.sequence({e_.text(std::string(1, open)), space(), inside, e_.text(std::string(1, close))});
}

void JsonText::declare_values() {
  if (value_) return;
  const Rule value = e_.declare("value"), object = e_.declare("object"), array = e_.declare("array");
  value_ = e_.call(value);
  object_ = e_.call(object);
  array_ = e_.call(array);
  const auto list = [&](Expression part) { return e_.sequence({part, e_.repeat(separated(part), 0, kForever)}); };
  e_.define(object, bracketed('{', list(e_.sequence({string(), e_.text(":"), space(), *value_})), true, '}'));
  e_.define(array, bracketed('[', list(*value_), true, ']'));
  e_.define(value,
            e_.any_of({*object_, *array_, string(), number(), e_.text("true"), e_.text("false"), e_.text("null")}));
}

Expression JsonText::value() { return declare_values(), *value_; }
Expression JsonText::object() { return declare_values(), *object_; }
Expression JsonText::array() { return declare_values(), *array_; }

}  // namespace doppler
