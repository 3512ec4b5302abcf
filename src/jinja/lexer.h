// Cuts a template into tokens: the text between tags, and the words within them. Line breaks and white space around
// tags are dealt with here, the way Hugging Face sets jinja2 up: trim_blocks (the line break after a block tag goes)
// and lstrip_blocks (the indentation before one goes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doppler::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // data, name, operator, or the string with its escapes resolved
  int64_t integer = 0;
  double real = 0;
};

// The last token is kEnd. `name` is what messages call the template.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

// For messages: "'endif'", "the end of the template".
std::string describe(const Token& token);

}  // namespace doppler::jinja
