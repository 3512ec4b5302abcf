#include "base/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {
  const size_t bad = find_invalid_utf8(text_);
  if (bad != text_.size()) {
    at_ = bad;
    wrong("this is not UTF-8");
  }
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
}

void JsonReader::wrong(const std::string& what, const std::string& expected) const {
  const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n');
  const size_t column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  fail({.code = ErrorCode::kFormat,
        .what = what,
        .where = fmt::format("{}: line {}, column {}", where_, line, column),
        .expected = expected,
        .todo = "The file may be truncated or damaged; fetch or write it again"});
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

char JsonReader::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonReader::expect(char c) {
  if (peek() != c) wrong("this is not valid JSON", fmt::format("'{}'", c));
  ++at_;
}

void JsonReader::begin_object() {
  expect('{');
  fresh_ = true;
}

void JsonReader::begin_array() {
  expect('[');
  fresh_ = true;
}

bool JsonReader::next_key(std::string_view& key) {
  if (peek() == '}') {
    ++at_;
    fresh_ = false;
    return false;
  }
  if (!fresh_) expect(',');
  fresh_ = false;
  key = string();
  expect(':');
  return true;
}

bool JsonReader::next_element() {
  if (peek() == ']') {
    ++at_;
    fresh_ = false;
    return false;
  }
  if (!fresh_) expect(',');
  fresh_ = false;
  return true;
}

char JsonReader::kind() {
  const char c = peek();
  return c == '{' || c == '[' || c == '"' || c == 't' || c == 'f' || c == 'n' ? c : '\0';
}

char32_t JsonReader::hex4() {
  char32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (is_digit(c)) {
      code = code * 16 + static_cast<char32_t>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      code = code * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
    } else {
      wrong("a \\u escape needs four hexadecimal digits");
    }
  }
  return code;
}

// One escape, at_ just after the backslash, into scratch_.
void JsonReader::escape() {
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  ++at_;
  switch (c) {
    case '"':
    case '\\':
    case '/': scratch_ += c; return;
    case 'b': scratch_ += '\b'; return;
    case 'f': scratch_ += '\f'; return;
    case 'n': scratch_ += '\n'; return;
    case 'r': scratch_ += '\r'; return;
    case 't': scratch_ += '\t'; return;
    case 'u': break;
    default: --at_; wrong("there is no such escape");
  }
  char32_t code = hex4();
  if (code >= 0xD800 && code < 0xDC00) {
    if (!text_.substr(at_).starts_with("\\u")) wrong("half a surrogate pair");
    at_ += 2;
    const char32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) wrong("half a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    wrong("half a surrogate pair");
  }
  append_utf8(scratch_, code);
}

std::string_view JsonReader::string() {
  expect('"');
  const size_t begin = at_;
  const auto plain = [&] {  // to the next character that is not just itself
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"' || c == '\\') return;
      if (c < 0x20) wrong("a control character in a string");
      ++at_;
    }
    wrong("a string does not end");
  };
  plain();
  if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
  scratch_.assign(text_.substr(begin, at_ - begin));
  while (text_[at_] == '\\') {
    ++at_;
    escape();
    const size_t from = at_;
    plain();
    scratch_.append(text_.substr(from, at_ - from));
  }
  ++at_;
  return scratch_;
}

int64_t JsonReader::integer() {
  peek();
  const bool negative = at_ < text_.size() && text_[at_] == '-';
  if (negative) ++at_;
  if (at_ >= text_.size() || !is_digit(text_[at_])) wrong("a JSON value has the wrong type", "a whole number");
  int64_t value = 0;
  for (int digits = 0; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    if (++digits > 18) wrong("a number is too large");
    value = value * 10 + (text_[at_] - '0');
  }
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    wrong("a JSON value has the wrong type", "a whole number");
  }
  return negative ? -value : value;
}

bool JsonReader::boolean() {
  peek();
  for (const std::string_view word : {"true", "false"}) {
    if (text_.substr(at_).starts_with(word)) {
      at_ += word.size();
      return word == "true";
    }
  }
  wrong("a JSON value has the wrong type", "true or false");
}

bool JsonReader::take_null() {
  peek();
  if (!text_.substr(at_).starts_with("null")) return false;
  at_ += 4;
  return true;
}

std::string_view JsonReader::raw() {
  peek();
  const size_t begin = at_;
  size_t depth = 0;
  do {
    const char c = peek();
    if (c == '"') {
      string();
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) wrong("the JSON is nested too deeply");
      ++at_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) wrong("this is not valid JSON", "a value");
      --depth;
      ++at_;
    } else if ((c == ',' || c == ':') && depth > 0) {
      ++at_;
    } else {
      const size_t word = at_;
      while (at_ < text_.size() && std::string_view("{}[]\",: \n\r\t").find(text_[at_]) == std::string_view::npos)
        ++at_;
      if (at_ == word) wrong("this is not valid JSON", "a value");
    }
  } while (depth > 0);
  return text_.substr(begin, at_ - begin);
}

void JsonReader::finish() {
  if (peek() != '\0' || at_ != text_.size()) wrong("something follows the end of the JSON");
}

}  // namespace doppler
