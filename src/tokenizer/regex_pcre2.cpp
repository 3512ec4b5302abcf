#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "tokenizer/regex.h"

namespace doppler {
namespace {

// Backtracking steps allowed to one match. Honest patterns need a few for each byte; exponential ones stop here.
uint32_t step_limit(size_t text_bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(0xFFFFFFFFu, 10'000'000 + 16ull * text_bytes));
}

std::string pcre_message(int code) {
  PCRE2_UCHAR text[160] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Compiled {
  ~Compiled() { pcre2_code_free(code); }
  std::string pattern, where;
  pcre2_code* code = nullptr;
};

Regex Regex::compile(std::string_view pattern, const std::string& where) {
  const std::string translated = pcre_from_oniguruma(pattern, where);
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (!context) fail({.code = ErrorCode::kMemory, .what = "no memory for a regular expression", .where = where});
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 250);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &error_at, context);
  pcre2_compile_context_free(context);
  if (!code) {
    fail({.code = ErrorCode::kFormat,
          .what = "this regular expression is malformed",
          .where = where,
          .got = fmt::format("{} in '{}'", pcre_message(error), pattern)});
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without the compiler matching is slower, not different
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->where = where;
  compiled->code = code;
  Regex regex;
  regex.compiled_ = std::move(compiled);
  return regex;
}

const std::string& Regex::pattern() const { return compiled_->pattern; }

struct RegexMatcher::State {
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
  const Regex::Compiled& regex;
  std::string_view text;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
};

RegexMatcher::RegexMatcher(const Regex& regex, std::string_view text)
    : state_(
          new State{*regex.compiled_, text, pcre2_match_data_create(1, nullptr), pcre2_match_context_create(nullptr)}) {
  if (!state_->data || !state_->context) {
    fail({.code = ErrorCode::kMemory, .what = "no memory for a regular expression", .where = regex.pattern()});
  }
  pcre2_set_match_limit(state_->context, step_limit(text.size()));
}

RegexMatcher::~RegexMatcher() = default;

std::optional<Span> RegexMatcher::find(size_t from) {
  const State& s = *state_;
  const auto match = [&](uint32_t options) {
    return pcre2_match(s.regex.code, reinterpret_cast<PCRE2_SPTR>(s.text.data()), s.text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, s.data, s.context);
  };
  int found = match(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);  // the interpreter keeps its state on the heap
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "a regular expression gave up on this text",
          .where = s.regex.where,
          .got = fmt::format("{} with '{}'", pcre_message(found), s.regex.pattern)});
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data);
  return Span{ends[0], ends[1]};
}

}  // namespace doppler
