#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "tokenizer/regex.h"

namespace doppler {
namespace {

// A find looks at this much text first, and backtracks so often from each place: enough for any word. What that leaves
// open is decided by the same expression compiled to count its steps, which is a few times slower.
constexpr size_t kWindow = 128;  // bytes
constexpr uint32_t kWindowSteps = 256;

std::string pcre_message(int code) {
  PCRE2_UCHAR text[160] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Compiled {
  ~Compiled() {
    pcre2_code_free(code);
    pcre2_code_free(counting);
  }
  pcre2_code* compile(uint32_t options, uint32_t jit) const;

  std::string pattern, where, translated;
  pcre2_code* code = nullptr;
  mutable std::once_flag once;  // of `counting`, which few texts need
  mutable pcre2_code* counting = nullptr;
};

pcre2_code* Regex::Compiled::compile(uint32_t options, uint32_t jit) const {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (!context) fail({.code = ErrorCode::kMemory, .what = "no memory for a regular expression", .where = where});
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 250);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* made = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | options, &error,
                                   &error_at, context);
  pcre2_compile_context_free(context);
  if (!made) {
    fail({.code = ErrorCode::kFormat,
          .what = "this regular expression is malformed",
          .where = where,
          .got = fmt::format("{} in '{}'", pcre_message(error), pattern)});
  }
  pcre2_jit_compile(made, jit);  // without the compiler matching is slower, not different
  return made;
}

Regex Regex::compile(std::string_view pattern, const std::string& where) {
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->where = where;
  compiled->translated = pcre_from_oniguruma(pattern, where);
  compiled->code = compiled->compile(0, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  Regex regex;
  regex.compiled_ = std::move(compiled);
  return regex;
}

const std::string& Regex::pattern() const { return compiled_->pattern; }

struct RegexMatcher::State {
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_match_context_free(counting);
  }
  int match(const pcre2_code* code, size_t end, size_t from, uint32_t options, pcre2_match_context* limits) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), end, from, PCRE2_NO_UTF_CHECK | options, data,
                       limits);
  }
  size_t window_from(size_t from) const;
  std::optional<Span> find_counting(size_t from);

  const Regex::Compiled& regex;
  std::string_view text;
  TextEffort& effort;
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_match_context* counting = nullptr;
  size_t window = 0;  // where the text that is looked at first ends
  size_t place = 0;   // where the counting match stood last
  uint32_t calls = 0;
};

RegexMatcher::RegexMatcher(const Regex& regex, std::string_view text, TextEffort& effort)
    : state_(new State{*regex.compiled_, text, effort}) {
  if (!state_->data || !state_->context) {
    fail({.code = ErrorCode::kMemory, .what = "no memory for a regular expression", .where = regex.pattern()});
  }
  pcre2_set_match_limit(state_->context, kWindowSteps);
}

RegexMatcher::~RegexMatcher() = default;

size_t RegexMatcher::State::window_from(size_t from) const {
  if (text.size() - from <= kWindow) return text.size();
  size_t end = from + kWindow;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return end;
}

std::optional<Span> RegexMatcher::find(size_t from) {
  State& s = *state_;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data);
  if (from >= s.window) s.window = s.window_from(from);
  for (;;) {
    const bool whole = s.window == s.text.size();
    // A hard partial match is one that looked at the end of the window; any other result holds for all of the text.
    const int found = s.match(s.regex.code, s.window, from, whole ? 0 : PCRE2_PARTIAL_HARD, s.context);
    // At its very end a window has nothing to look at: what is found or not found there says nothing.
    const bool inside = whole || (found > 0 && ends[0] < s.window);
    if (found > 0 && inside) return Span{ends[0], ends[1]};
    if (found == PCRE2_ERROR_NOMATCH && whole) return std::nullopt;
    if (found > 0 || found == PCRE2_ERROR_NOMATCH) {
      from = s.window;
    } else if (found == PCRE2_ERROR_PARTIAL && s.window != s.window_from(ends[0])) {
      from = ends[0];
    } else {
      return s.find_counting(found == PCRE2_ERROR_PARTIAL ? ends[0] : from);
    }
    s.window = s.window_from(from);
    s.effort.tick();
  }
}

std::optional<Span> RegexMatcher::State::find_counting(size_t from) {
  std::call_once(regex.once, [&] { regex.counting = regex.compile(PCRE2_AUTO_CALLOUT, PCRE2_JIT_COMPLETE); });
  if (!counting) {
    counting = pcre2_match_context_create(nullptr);
    if (!counting)
      fail({.code = ErrorCode::kMemory, .what = "no memory for a regular expression", .where = regex.where});
    pcre2_set_match_limit(counting, 0xFFFFFFFF);
    // KiB, at most 512 MiB. A place to come back to takes some 100 bytes, and a byte of text some of them.
    pcre2_set_heap_limit(counting, static_cast<uint32_t>(std::min<size_t>(65536 + text.size(), 1 << 19)));
    // Before every part of the expression, at every try.
    const auto step = [](pcre2_callout_block* block, void* state) {
      State& s = *static_cast<State*>(state);
      const size_t at = block->current_position;
      const bool wanted = ++s.calls % 65536 != 0 || !s.effort.cancelled();
      const bool go_on = s.effort.spend(1 + (at > s.place ? at - s.place : s.place - at)) && wanted;
      s.place = at;
      return go_on ? 0 : PCRE2_ERROR_CALLOUT;
    };
    pcre2_set_callout(counting, step, this);
  }
  place = from;
  int found = match(regex.counting, text.size(), from, 0, counting);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
    found = match(regex.counting, text.size(), from, PCRE2_NO_JIT, counting);
  }
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    effort.check();
    const bool spent = found == PCRE2_ERROR_CALLOUT;
    fail({.code = ErrorCode::kUnsupported,
          .what = "a regular expression gave up on this text",
          .where = regex.where,
          .expected = spent ? fmt::format("at most {} steps for all of the text", effort.limit()) : "",
          .got = fmt::format("{} with '{}'", spent ? "more" : pcre_message(found), regex.pattern),
          .todo = "Take a shorter text, or another model"});
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  return Span{ends[0], ends[1]};
}

}  // namespace doppler
