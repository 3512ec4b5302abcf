#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

}  // namespace

void append_normal(std::string& out, const std::vector<char32_t>& codes, NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
                                                      (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  std::vector<utf8proc_int32_t> buffer;
  buffer.reserve(codes.size() + 32);
  utf8proc_int32_t parts[32];  // the longest decomposition there is has 18 characters
  int boundary = 0;
  for (const char32_t code : codes) {
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 32, options, &boundary);
    if (count < 0 || count > 32) {
      fail({.code = ErrorCode::kInternal, .what = "a character cannot be decomposed", .where = utf8proc_errmsg(count)});
    }
    buffer.insert(buffer.end(), parts, parts + count);
  }
  for (auto run = buffer.begin(); run != buffer.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, buffer.end(), [](utf8proc_int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
  const auto length = utf8proc_normalize_utf32(buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()), options);
  for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(out, static_cast<char32_t>(buffer[static_cast<size_t>(i)]));
}

}  // namespace doppler
