// Oniguruma's (Ruby's) syntax of regular expressions, rewritten for another engine.
#pragma once

#include <string>
#include <string_view>

namespace doppler {

// The same expression for PCRE2 with UTF, UCP, MULTILINE and newline LF. What the two would read differently is
// spelled out (\s, \w, \d, \p{…} with the characters of newer Unicode versions, \v, \h); what cannot be is an error
// that names the construct.
std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace doppler
