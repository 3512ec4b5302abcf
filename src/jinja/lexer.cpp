#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "jinja/limits.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the digits up to `highest` that s begins with, single underscores between them included.
size_t digits(std::string_view s, char highest = '9') {
  size_t end = 0;
  while (end < s.size()) {
    const size_t digit = end + (s[end] == '_' && end > 0);
    if (digit >= s.size() || s[digit] < '0' || s[digit] > highest) break;
    end = digit + 1;
  }
  return end;
}

std::string without_underscores(std::string_view s) {
  std::string out;
  for (const char c : s) {
    if (c != '_') out += c;
  }
  return out;
}

// `s` is a sign or nothing, and digits. False where that is beyond 64 bits.
bool to_integer(std::string_view s, int64_t& out) {
  const std::string plain = without_underscores(s);
  return std::from_chars(plain.data(), plain.data() + plain.size(), out).ec == std::errc();
}

// Bytes of a floating point literal, or 0: digits, then a fraction or an exponent or both.
size_t real_length(std::string_view s) {
  size_t end = digits(s);
  if (end == 0) return 0;
  const size_t whole = end;
  if (end < s.size() && s[end] == '.') {
    if (const size_t fraction = digits(s.substr(end + 1))) end += 1 + fraction;
  }
  size_t exponent = end;
  if (exponent < s.size() && (s[exponent] == 'e' || s[exponent] == 'E')) {
    ++exponent;
    if (exponent < s.size() && (s[exponent] == '+' || s[exponent] == '-')) ++exponent;
    if (const size_t n = digits(s.substr(exponent))) end = exponent + n;
  }
  return end == whole ? 0 : end;
}

// `s` is a floating point literal or digits. Too large becomes infinity, too small becomes zero.
double to_real(std::string_view s) { return std::strtod(without_underscores(s).c_str(), nullptr); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

NumberLiteral read_number(std::string_view s, bool may_be_real) {
  NumberLiteral out;
  if (may_be_real && (out.bytes = real_length(s)) > 0) {
    out.is_real = true;
    out.real = to_real(s.substr(0, out.bytes));
    out.too_large = std::isinf(out.real);
    return out;
  }
  out.bytes = s[0] == '0' ? digits(s, '0') : digits(s);  // zeros only, or a number that does not begin with one
  out.too_large = !to_integer(s.substr(0, out.bytes), out.integer);
  return out;
}

bool unescape(std::string_view s, std::string& out, std::string& fault) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '\\') {
      out += s[i++];
      continue;
    }
    if (++i == s.size()) {
      fault = "a string ends in a backslash";
      return false;
    }
    const char c = s[i];
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kMeanings[known];
      ++i;
    } else if (c == '\n') {
      ++i;
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int n = 0; n < 3 && i < s.size() && s[i] >= '0' && s[i] <= '7'; ++n)
        code = code * 8 + static_cast<char32_t>(s[i++] - '0');
      append_utf8(out, code);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      char32_t code = 0;
      for (size_t n = 1; n <= width; ++n) {
        const int digit = i + n < s.size() ? hex_digit(s[i + n]) : -1;
        if (digit < 0) {
          fault = std::string("a string has a broken escape \\") + c;
          return false;
        }
        code = code * 16 + static_cast<char32_t>(digit);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        fault = std::string("a string has an escape \\") + c + " that is no character";
        return false;
      }
      append_utf8(out, code);
      i += 1 + width;
    } else if (c == 'N') {
      fault = "a string names a character with \\N, which is not supported";
      return false;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // Python's decoder sees the character as an escape of its own here, and leaves that as text.
      const char32_t code = text::decode(s, i);
      constexpr std::string_view kHex = "0123456789abcdef";
      const int width = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
      out += width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U";
      for (int shift = 4 * (width - 1); shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
    } else {  // unknown escapes stay as they are
      out += '\\';
      out += c;
      ++i;
    }
  }
  return true;
}

bool parse_integer(std::string_view s, int64_t& out, bool& too_large) {
  s = text::strip(s, true, true);
  const bool negative = s.starts_with('-');
  if (negative || s.starts_with('+')) s.remove_prefix(1);
  too_large = false;
  if (s.empty() || digits(s) != s.size()) return false;
  too_large = !to_integer((negative ? "-" : "") + std::string(s), out);
  return true;
}

bool parse_real(std::string_view s, double& out) {
  s = text::strip(s, true, true);
  const bool negative = !s.empty() && s[0] == '-';
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.remove_prefix(1);
  const std::string word = text::lower(s);
  if (word == "inf" || word == "infinity") {
    out = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else {
    std::string plain(s);
    if (plain.starts_with('.')) plain.insert(0, "0");  // ".5" and "5." are numbers to float()
    const size_t dot = plain.find('.');
    if (dot != std::string::npos && (dot + 1 == plain.size() || !is_digit(plain[dot + 1]))) plain.insert(dot + 1, "0");
    if (s.empty() || s == ".") return false;
    if (real_length(plain) != plain.size() && digits(plain) != plain.size()) return false;
    out = to_real(plain);
  }
  if (negative) out = -out;
  return true;
}

namespace {

constexpr std::array<std::string_view, 6> kLongOperators = {"//", "**", "==", "!=", ">=", "<="};
constexpr std::string_view kShortOperators = "+-/*%~[](){}><=.:|,;";

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // jinja2 drops one line break at the end
  return out;
}

// 0x1F, 0o17, 0b11.
bool has_base(std::string_view s) {
  if (s.size() < 3 || s[0] != '0') return false;
  const char base = static_cast<char>(s[1] | 0x20);
  const char first = s[2] == '_' && s.size() > 3 ? s[3] : s[2];
  return (base == 'x' && hex_digit(first) >= 0) || (base == 'o' && first >= '0' && first <= '7') ||
         (base == 'b' && (first == '0' || first == '1'));
}

bool is_ascii_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& name) : source_(std::move(source)), location_{name, 1, {}, {}} {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string what, std::string_view construct = {}) {
    location_.construct = construct;
    fail_at(location_, ErrorCode::kFormat, std::move(what));
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view s) const { return rest().starts_with(s); }

  void emit(TokenKind kind, std::string text) { tokens_.push_back({kind, location_.line, std::move(text), 0, 0}); }
  void emit_data(std::string_view text) {
    if (!text.empty()) emit(TokenKind::kData, std::string(text));
  }

  // Moves on, counting lines.
  void advance(size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    location_.line += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }

  size_t spaces_at(size_t at) const {
    size_t end = at;
    while (end < source_.size()) {
      size_t next = end;
      if (!text::is_space(text::decode(source_, next))) break;
      end = next;
    }
    return end - at;
  }

  // Takes '-' or '+' after an opening delimiter.
  char take_sign() {
    if (!next_is("-") && !next_is("+")) return 0;
    const char sign = source_[at_];
    advance(1);
    return sign;
  }

  // The text before a tag, without what white space control takes away.
  std::string_view before_tag(std::string_view text, bool line_starting, char sign, bool is_variable) const {
    if (sign == '-') return text::strip(text, false, true);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting) return text;
    return text::strip(text.substr(begin), true, false).empty() ? text.substr(0, begin) : text;
  }

  // What follows a closing delimiter that stands at at_: '-' eats all white space, nothing eats one line break.
  void close(std::string_view delimiter, char sign, bool trims_newline) {
    advance((sign ? 1 : 0) + delimiter.size());
    if (sign == '-') {
      advance(spaces_at(at_));
    } else if (sign == 0 && trims_newline && next_is("\n")) {
      advance(1);
    }
  }

  void text_and_tag() {
    const bool line_starting = at_ == 0 || source_[at_ - 1] == '\n';
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        emit_data(rest());
        advance(source_.size() - at_);
        return;
      }
      if (const char c = source_[tag + 1]; c == '{' || c == '%' || c == '#') break;
    }
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : 0;
    const char sign = after == '-' || after == '+' ? after : 0;
    emit_data(before_tag(rest().substr(0, tag - at_), line_starting, sign, kind == '{'));
    advance(tag - at_);
    if (kind == '#') return comment(sign);
    if (kind == '%' && raw(sign)) return;
    emit(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    advance(2 + (sign ? 1 : 0));
    inside_tag(kind == '{');
  }

  void comment(char sign) {
    const size_t begin = at_ + 2 + (sign ? 1 : 0);
    const size_t end = source_.find("#}", begin);
    if (end == std::string::npos) error("a comment is never closed", "{#");
    const char before = end > begin ? source_[end - 1] : 0;
    const char closing = before == '-' || before == '+' ? before : 0;
    advance(end - (closing ? 1 : 0) - at_);
    close("#}", closing, true);
  }

  // {% raw %} up to {% endraw %}: text in which tags mean nothing. False when this block is another.
  bool raw(char sign) {
    size_t at = at_ + 2 + (sign ? 1 : 0);
    at += spaces_at(at);
    if (!std::string_view(source_).substr(at).starts_with("raw")) return false;
    at += 3;
    at += spaces_at(at);
    const bool strips = at < source_.size() && source_[at] == '-';
    if (!std::string_view(source_).substr(at + strips).starts_with("%}")) return false;
    advance(at - at_);
    close("%}", strips ? '-' : 0, /*trims_newline=*/false);

    const size_t begin = at_;
    for (size_t end = source_.find("{%", begin); end != std::string::npos; end = source_.find("{%", end + 1)) {
      size_t inner = end + 2;
      char opening = inner < source_.size() ? source_[inner] : 0;
      if (opening != '-' && opening != '+') opening = 0;
      inner += opening ? 1 : 0;
      inner += spaces_at(inner);
      if (!std::string_view(source_).substr(inner).starts_with("endraw")) continue;
      inner += 6;
      inner += spaces_at(inner);
      char closing = inner < source_.size() ? source_[inner] : 0;
      if (closing != '-' && closing != '+') closing = 0;
      if (!std::string_view(source_).substr(inner + (closing ? 1 : 0)).starts_with("%}")) continue;
      const bool line_starting = source_[begin - 1] == '\n';
      emit_data(before_tag(rest().substr(0, end - begin), line_starting, opening, false));
      advance(inner - at_);
      close("%}", closing, true);
      return true;
    }
    error("a raw block is never closed", "{% raw %}");
  }

  void inside_tag(bool is_variable) {
    const int opened_on = location_.line;
    const std::string_view delimiter = is_variable ? "}}" : "%}";
    std::string open;  // brackets not yet closed: within them a delimiter is two operators
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (open.empty()) {
        const char sign = c == '-' || (c == '+' && !is_variable) ? c : 0;
        if (rest().substr(sign ? 1 : 0).starts_with(delimiter)) {
          emit(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          close(delimiter, sign, !is_variable);
          return;
        }
      }
      if (const size_t spaces = spaces_at(at_)) {
        advance(spaces);
      } else if (is_digit(c)) {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else if (!name() && !operation(open)) {
        size_t end = at_;
        text::decode(source_, end);
        error("a character has no meaning here: '" + source_.substr(at_, end - at_) + "'", is_variable ? "{{" : "{%");
      }
    }
    location_.line = opened_on;
    error("a tag is never closed", is_variable ? "{{" : "{%");
  }

  bool name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end + 1;
      if (static_cast<unsigned char>(source_[end]) >= 0x80) {
        next = end;
        const char32_t c = text::decode(source_, next);
        if (!(end == at_ ? text::is_name_start(c) : text::is_name_part(c))) break;
      } else if (!is_ascii_word(source_[end])) {
        break;
      }
      end = next;
    }
    if (end == at_) return false;
    emit(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  void number() {
    if (has_base(rest())) {
      fail_at(location_, ErrorCode::kUnsupported,
              "a number in hexadecimal, octal or binary is not supported in templates");
    }
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // the 1 of x.1.0 is no fraction
    const NumberLiteral literal = read_number(rest(), /*may_be_real=*/!after_dot);
    if (literal.too_large) error("a number is too large: " + source_.substr(at_, literal.bytes));
    emit(literal.is_real ? TokenKind::kFloat : TokenKind::kInteger, source_.substr(at_, literal.bytes));
    tokens_.back().integer = literal.integer;
    tokens_.back().real = literal.real;
    advance(literal.bytes);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("a string is never closed", quote == '"' ? "\"" : "'");
    std::string text, fault;
    if (!unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), text, fault)) error(fault);
    emit(TokenKind::kString, std::move(text));
    advance(end + 1 - at_);
  }

  bool operation(std::string& open) {
    for (const std::string_view op : kLongOperators) {
      if (next_is(op)) {
        emit(TokenKind::kOperator, std::string(op));
        advance(2);
        return true;
      }
    }
    const char c = source_[at_];
    if (kShortOperators.find(c) == std::string_view::npos) return false;
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) error(std::string("unexpected '") + c + "'");
      if (open.back() != c) error(std::string("unexpected '") + c + "' where '" + open.back() + "' should close");
      open.pop_back();
    }
    emit(TokenKind::kOperator, std::string(1, c));
    advance(1);
    return true;
  }

  const std::string source_;
  Location location_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  if (source.size() > kMaxSourceBytes) {
    fail({.code = ErrorCode::kFormat,
          .what = "the template is too long",
          .where = name,
          .expected = "at most " + std::to_string(kMaxSourceBytes) + " bytes",
          .got = std::to_string(source.size())});
  }
  if (find_invalid_utf8(source) != source.size())
    fail({.code = ErrorCode::kFormat, .what = "the template is not valid UTF-8", .where = name});
  return Lexer(normalize_newlines(source), name).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kString: return "a string";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator: return "'" + token.text + "'";
    case TokenKind::kEnd: return "the end of the template";
  }
  return "";
}

}  // namespace doppler::jinja
