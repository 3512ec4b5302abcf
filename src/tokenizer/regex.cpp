// What is the same for every engine behind regex.h: Oniguruma's syntax rewritten for PCRE2, and TextPattern.
#include "tokenizer/regex.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

constexpr char32_t kNone = 0xFFFFFFFF;

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
int hex_value(char32_t c) {
  if (is_digit(c)) return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<int>(c - 'A' + 10);
  return -1;
}

// One element of a pattern that stands for characters.
struct Item {
  char32_t code = kNone;  // a single character, or
  std::string set;        // the inside of a PCRE2 character class,
  bool negated = false;   // or all that is not in `set`
};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  std::string run() {
    const size_t bad = find_invalid_utf8(pattern_);
    if (bad != pattern_.size()) refuse(fmt::format("a byte that is not UTF-8, at {}", bad));
    if (pattern_.starts_with("(?i)")) {  // only here do both engines take it for the whole expression
      out_ = "(?i)";
      at_ = 4;
      ignore_case_ = true;
    }
    while (at_ < pattern_.size()) element();
    if (!groups_.empty()) refuse("a group without its ')'");
    return std::move(out_);
  }

 private:
  struct Group {
    size_t start;  // in out_
    bool outer_ignore_case;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this regular expression cannot be used",
          .where = where_,
          .got = fmt::format("{} in '{}'", what, pattern_)});
  }

  bool ahead(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  char32_t next() {
    if (at_ >= pattern_.size()) refuse("an unexpected end");
    uint32_t length = 0;
    const char32_t c = read_valid_utf8(pattern_, at_, length);
    at_ += length;
    return c;
  }

  void element() {
    const char c = pattern_[at_];
    switch (c) {
      case '(': return open_group();
      case ')': return close_group();
      case '[': return character_class();
      case '{': return interval();
      case '*':
      case '+':
      case '?': {
        out_ += c;
        ++at_;
        if (ahead("?") || ahead("+")) out_ += pattern_[at_++];
        last_literal_ = kNone;
        return;
      }
      case '|':
      case '^':
      case '$':
      case '.': {
        ++at_;
        atom_ = out_.size();
        out_ += c;
        last_literal_ = kNone;
        return;
      }
      case '\\':
        if (ahead("\\A") || ahead("\\z") || ahead("\\Z")) {
          atom_ = out_.size();
          out_ += pattern_.substr(at_, 2);
          at_ += 2;
          last_literal_ = kNone;
          return;
        }
        [[fallthrough]];
      default: {
        const Item item = character();
        atom_ = out_.size();
        if (item.code == kNone) {
          out_ += fmt::format("[{}{}]", item.negated ? "^" : "", item.set);
          last_literal_ = kNone;
        } else {
          literal(item.code);
        }
      }
    }
  }

  void literal(char32_t code) {
    if (ignore_case_) {
      if (code >= 0x80) refuse("a character beyond ASCII under (?i)");
      // Oniguruma also folds single characters to several: ß to ss, ligatures to ff, fi, fl, st.
      const char32_t lower = code | 0x20, before = last_literal_ == kNone ? kNone : last_literal_ | 0x20;
      if ((before == 's' && (lower == 's' || lower == 't')) ||
          (before == 'f' && (lower == 'f' || lower == 'i' || lower == 'l'))) {
        refuse("letters under (?i) that a ligature could match");
      }
    }
    last_literal_ = code;
    append_code(out_, code);
  }

  static void append_code(std::string& out, char32_t code) {
    if (is_letter(code) || is_digit(code)) {
      out += static_cast<char>(code);
    } else {
      out += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(code));
    }
  }

  void open_group() {
    static constexpr std::array<std::string_view, 6> kSame = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    const size_t start = out_.size();
    const bool outer = ignore_case_;
    last_literal_ = kNone;
    for (const std::string_view opening : kSame) {
      if (ahead(opening)) {
        at_ += opening.size();
        out_ += opening;
        groups_.push_back({start, outer});
        return;
      }
    }
    if (ahead("(?i:")) {
      at_ += 4;
      out_ += "(?i:";
      ignore_case_ = true;
    } else if (ahead("(?-i:")) {
      at_ += 5;
      out_ += "(?-i:";
      ignore_case_ = false;
    } else if (ahead("(?")) {
      refuse(fmt::format("the group '{}'", pattern_.substr(at_, 4)));
    } else {
      ++at_;
      out_ += "(?:";  // nothing can refer back to it
    }
    groups_.push_back({start, outer});
    if (groups_.size() > 200) refuse("groups nested too deeply");
  }

  void close_group() {
    if (groups_.empty()) refuse("a ')' without its group");
    ++at_;
    out_ += ')';
    atom_ = groups_.back().start;
    ignore_case_ = groups_.back().outer_ignore_case;
    groups_.pop_back();
    last_literal_ = kNone;
  }

  // {n}, {n,}, {,m}, {n,m}; any other '{' is itself.
  void interval() {
    size_t i = at_ + 1;
    const auto number = [&] {
      const size_t begin = i;
      while (i < pattern_.size() && is_digit(static_cast<unsigned char>(pattern_[i]))) ++i;
      return pattern_.substr(begin, i - begin);
    };
    const std::string_view low = number();
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma) ++i;
    const std::string_view high = comma ? number() : std::string_view();
    if (i >= pattern_.size() || pattern_[i] != '}' || (low.empty() && high.empty())) {
      ++at_;
      atom_ = out_.size();
      return literal('{');
    }
    // The matcher counts a repeated character as one step, however often it must be there.
    for (const std::string_view count : {low, high}) {
      if (count.size() > 3 && count != "1000") refuse("a repetition of more than 1000 times");
    }
    at_ = i + 1;
    last_literal_ = kNone;
    out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", high);
    // In Ruby's syntax a '+' after an interval repeats it, and so does the '?' of {n}?: neither is a mode of it.
    if (ahead("+") || (!comma && ahead("?"))) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      out_ += pattern_[at_++];
    } else if (ahead("?")) {
      out_ += pattern_[at_++];
    }
  }

  void character_class() {
    atom_ = out_.size();
    last_literal_ = kNone;
    ++at_;
    bool negated = false;
    if (ahead("^")) {
      negated = true;
      ++at_;
    }
    if (ahead("]")) refuse("an empty character class");
    std::string set;
    bool complement = false;  // the class is one negated set, such as [\P{L}]
    size_t items = 0;
    while (!ahead("]")) {
      if (ahead("[")) refuse("a class within a class");
      if (ahead("&&")) refuse("an intersection of classes");
      const Item item = ahead("-") ? (++at_, Item{'-', "", false}) : character();
      ++items;
      if (item.code == kNone) {
        if (item.negated && item.set == kSpace) {
          set += "\\S\\x{180e}";
        } else if (item.negated) {
          if (complement || items > 1 || !ahead("]")) refuse("a negated set beside others in one class");
          complement = true;
          set += item.set;
        } else {
          set += item.set;
        }
        continue;
      }
      if (ignore_case_ && item.code >= 0x80) refuse("a character beyond ASCII under (?i)");
      append_code(set, item.code);
      if (ahead("-") && !ahead("-]")) {
        ++at_;
        if (ahead("[")) refuse("a class within a class");
        const Item last = character();
        if (last.code == kNone || last.code < item.code) refuse("a range without an end");
        set += '-';
        append_code(set, last.code);
      }
    }
    ++at_;
    out_ += fmt::format("[{}{}]", negated != complement ? "^" : "", set);
  }

  // A character or set, plain or escaped.
  Item character() {
    const char32_t c = next();
    if (c != '\\') return {c, "", false};
    const char32_t e = next();
    switch (e) {
      case 'n': return {'\n', "", false};
      case 'r': return {'\r', "", false};
      case 't': return {'\t', "", false};
      case 'f': return {'\f', "", false};
      case 'v': return {'\v', "", false};
      case 'a': return {'\a', "", false};
      case 'e': return {0x1B, "", false};
      case 's': return {kNone, kSpace, false};
      case 'S': return {kNone, kSpace, true};
      case 'd': return {kNone, category("Nd"), false};
      case 'D': return {kNone, category("Nd"), true};
      case 'w': return {kNone, word(), false};
      case 'W': return {kNone, word(), true};
      case 'h': return {kNone, "0-9a-fA-F", false};
      case 'H': return {kNone, "0-9a-fA-F", true};
      case 'p':
      case 'P': return property(e == 'P');
      case 'u': return {hex_digits(4, 4), "", false};
      case 'x': {
        if (!ahead("{")) {
          const char32_t code = hex_digits(1, 2);
          if (code >= 0x80) refuse("a byte written as \\x");
          return {code, "", false};
        }
        ++at_;
        const char32_t code = hex_digits(1, 8);
        if (!ahead("}")) refuse("a \\x{ without its end");
        ++at_;
        return {code, "", false};
      }
      default:
        if (e < 0x80 && (is_letter(e) || is_digit(e))) refuse(fmt::format("the escape '\\{}'", static_cast<char>(e)));
        return {e, "", false};
    }
  }

  char32_t hex_digits(int least, int most) {
    char32_t code = 0;
    int count = 0;
    while (count < most && at_ < pattern_.size() && hex_value(static_cast<unsigned char>(pattern_[at_])) >= 0) {
      code = code * 16 + static_cast<char32_t>(hex_value(static_cast<unsigned char>(pattern_[at_++])));
      ++count;
    }
    if (count < least || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("a wrong character number");
    return code;
  }

  Item property(bool negated) {
    if (!ahead("{")) refuse("a property without braces");
    ++at_;
    if (ahead("^")) {
      negated = !negated;
      ++at_;
    }
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) refuse("a property without its '}'");
    const std::string_view name = pattern_.substr(at_, close - at_);
    at_ = close + 1;
    // Scripts: these ideographs came with Unicode 15.
    if (name == "Han") return {kNone, "\\p{sc:Han}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", negated};
    static constexpr std::array<std::string_view, 28> kKnown = {
        "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd",
        "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
    for (const std::string_view known : kKnown) {
      if (name != known) continue;
      if (ignore_case_ && (name == "Lu" || name == "Ll" || name == "Lt")) refuse("a letter case under (?i)");
      return {kNone, category(name), negated};
    }
    refuse(fmt::format("the property '{}'", name));
  }

  static std::string category(std::string_view name) {
    std::string set = fmt::format("\\p{{{}}}", name);
    for (const LaterCategory& range : later_categories()) {
      if (!std::string_view(range.category).starts_with(name)) continue;
      set +=
          fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
    }
    return set;
  }

  // Alphabetic, marks, decimal digits, connectors; and, in Oniguruma alone, Latin-1's superscripts and fractions.
  static std::string word() {
    return category("L") + category("M") + category("Nd") + category("Nl") + category("Pc") +
           "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
           "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
  }

  static constexpr const char* kSpace = "\\x{9}-\\x{d}\\x{85}\\p{Z}";

  std::string_view pattern_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;  // where in out_ the last thing that can be repeated begins
  std::vector<Group> groups_;
  bool ignore_case_ = false;
  char32_t last_literal_ = kNone;
};

}  // namespace

std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

TextPattern TextPattern::literal(std::string content) {
  TextPattern pattern;
  pattern.literal_ = std::move(content);
  return pattern;
}

TextPattern TextPattern::regex(std::string_view expression, const std::string& where) {
  TextPattern pattern;
  pattern.regex_ = Regex::compile(expression, where);
  return pattern;
}

void TextPattern::each_match(std::string_view text, TextEffort& effort, const std::function<void(Span)>& match) const {
  if (text.empty()) return;
  if (!regex_) {
    // memmem is linear whatever the two are; string_view's find is not.
    for (size_t at = 0;; at += literal_.size()) {
      const void* found = memmem(text.data() + at, text.size() - at, literal_.data(), literal_.size());
      if (!found) return;
      at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
      effort.tick();
      match({at, at + literal_.size()});
    }
  }
  RegexMatcher matcher(*regex_, text, effort);
  size_t from = 0;
  std::optional<size_t> last_end;
  while (from <= text.size()) {
    effort.tick();
    const std::optional<Span> found = matcher.find(from);
    if (!found) return;
    if (found->begin == found->end && last_end == found->end) {
      uint32_t length = 1;
      if (from < text.size()) read_valid_utf8(text, from, length);
      from += length;
      continue;
    }
    from = found->end;
    last_end = found->end;
    match(*found);
  }
}

}  // namespace doppler
