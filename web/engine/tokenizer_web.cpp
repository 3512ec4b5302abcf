// tokenizer/regex.h and append_normal() of tokenizer/unicode.h with the browser's own RegExp and String.normalize.
#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "host.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace doppler {

struct Regex::Compiled {
  ~Compiled() {
    if (handle >= 0) host_regex_free(handle);
  }
  std::string pattern;
  int32_t handle = -1;
};

Regex Regex::compile(std::string_view pattern, const std::string& where) {
  // The host turns PCRE2's spelling, in which everything unusual is spelled out already, into RegExp's.
  const std::string translated = pcre_from_oniguruma(pattern, where);
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->handle = host_regex_compile(translated.data(), static_cast<uint32_t>(translated.size()));
  if (compiled->handle < 0) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this regular expression is malformed, or none a browser can run",
          .where = where,
          .got = std::string(pattern)});
  }
  Regex regex;
  regex.compiled_ = std::move(compiled);
  return regex;
}

const std::string& Regex::pattern() const { return compiled_->pattern; }

struct RegexMatcher::State {
  int32_t regex, text;
};

RegexMatcher::RegexMatcher(const Regex& regex, std::string_view text, TextEffort&)
    : state_(new State{regex.compiled_->handle, host_text_open(text.data(), static_cast<uint32_t>(text.size()))}) {}

RegexMatcher::~RegexMatcher() { host_text_close(state_->text); }

std::optional<Span> RegexMatcher::find(size_t from) {
  uint32_t found[2];
  if (!host_regex_find(state_->regex, state_->text, static_cast<uint32_t>(from), found)) return std::nullopt;
  return Span{found[0], found[1]};
}

void append_normal(std::string& out, const std::vector<char32_t>& codes, NormalForm form) {
  std::vector<char32_t> normal(
      host_normalize(codes.data(), static_cast<uint32_t>(codes.size()), static_cast<uint32_t>(form)));
  host_normalize_take(normal.data());
  for (const char32_t code : normal) append_utf8(out, code);
}

}  // namespace doppler
