#include "jinja/lexer.h"

#include <algorithm>
#include <array>

#include "jinja/limits.h"
#include "jinja/literals.h"
#include "jinja/place.h"
#include "jinja/text.h"

namespace doppler::jinja {
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

bool is_ascii_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& name) : source_(std::move(source)), place_{name, 1, {}, {}} {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string what, std::string_view construct = {}) {
    place_.construct = construct;
    fail_at(place_, ErrorCode::kFormat, std::move(what));
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view s) const { return rest().starts_with(s); }

  void emit(TokenKind kind, std::string text) { tokens_.push_back({kind, place_.line, std::move(text), 0, 0}); }
  void emit_data(std::string_view text) {
    if (!text.empty()) emit(TokenKind::kData, std::string(text));
  }

  // Moves on, counting lines.
  void advance(size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    place_.line += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
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
    const int opened_on = place_.line;
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
      } else if (c >= '0' && c <= '9') {
        number();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else if (!name() && !operation(open)) {
        size_t end = at_;
        text::decode(source_, end);
        error("a character has no meaning here: '" + source_.substr(at_, end - at_) + "'", is_variable ? "{{" : "{%");
      }
    }
    place_.line = opened_on;
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
  Place place_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  if (source.size() > kMaxSourceBytes) {
    fail({ErrorCode::kFormat, "the template is too long", name, "at most " + std::to_string(kMaxSourceBytes) + " bytes",
          std::to_string(source.size()), ""});
  }
  if (find_invalid_utf8(source) != source.size())
    fail({ErrorCode::kFormat, "the template is not valid UTF-8", name, "", "", ""});
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
