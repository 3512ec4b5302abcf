#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>

namespace {

struct CaseRun {
  int32_t first, last, step, add;
};

#include "unicode_data.h"

int32_t changed(std::span<const CaseRun> runs, int32_t code) {
  // Runs of step 2 may interleave, so the one before may be the right one too.
  auto at = std::upper_bound(runs.begin(), runs.end(), code, [](int32_t c, const CaseRun& r) { return c < r.first; });
  for (int tries = 0; tries < 2 && at != runs.begin(); ++tries) {
    --at;
    if (code <= at->last && (code - at->first) % at->step == 0) return code + at->add;
  }
  return code;
}

}  // namespace

utf8proc_category_t utf8proc_category(utf8proc_int32_t code) {
  if (code < 0 || code > 0x10FFFF) return UTF8PROC_CATEGORY_CN;
  const auto at = std::upper_bound(std::begin(kCategories), std::end(kCategories), static_cast<uint32_t>(code),
                                   [](uint32_t c, uint32_t entry) { return c < entry >> 5; });
  return static_cast<utf8proc_category_t>(*std::prev(at) & 31);
}

const char* utf8proc_category_string(utf8proc_int32_t code) {
  static const char* const names[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                      "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                      "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  return names[utf8proc_category(code)];
}

utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t code) { return changed(kLower, code); }
utf8proc_int32_t utf8proc_toupper(utf8proc_int32_t code) { return changed(kUpper, code); }
utf8proc_int32_t utf8proc_totitle(utf8proc_int32_t code) { return changed(kTitle, code); }
