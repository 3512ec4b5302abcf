// Cuts a template into tokens: the text between tags, and the words within them. Line breaks and white space around
// tags are dealt with here, the way Hugging Face sets jinja2 up: trim_blocks (the line break after a block tag goes)
// and lstrip_blocks (the indentation before one goes).
// Numbers and strings as they are written are read here too.
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

struct NumberLiteral {
  size_t bytes = 0;  // how much of the text it takes
  bool is_real = false;
  bool too_large = false;
  int64_t integer = 0;
  double real = 0;
};

// `s` begins with a digit.
NumberLiteral read_number(std::string_view s, bool may_be_real);

// Resolves Python's escapes. False with a sentence in `fault` when one is broken.
bool unescape(std::string_view s, std::string& out, std::string& fault);

// What int("...") and float("...") accept, white space and underscores included. `too_large`: a number, but not one of
// 64 bits.
bool parse_integer(std::string_view s, int64_t& out, bool& too_large);
bool parse_real(std::string_view s, double& out);

}  // namespace doppler::jinja
