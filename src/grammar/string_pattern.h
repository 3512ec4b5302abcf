// Regular expressions as JSON schemas write them (ECMAScript's, in Unicode mode), as far as they are regular: what they
// match becomes an expression over the text of a JSON string. Named formats are such expressions, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/json_text.h"

namespace doppler {

struct StringPattern {
  Expression content = Expressions::kNever;  // between the quotes
  uint64_t least = 0, most = 0;              // characters of what matches; kEndless: no bound
  Expression unit = Expressions::kNever;     // where it is one character, repeated least … most times: that one
  static constexpr uint64_t kEndless = ~uint64_t{0};
};

// A pattern that is not anchored matches anywhere in a string. Fails with the construct that is not supported.
StringPattern read_string_pattern(std::string_view pattern, JsonText& text, Expressions& expressions,
                                  const std::string& where);

// The pattern of a format that is supported, or null.
const char* pattern_of_format(std::string_view format);

}  // namespace doppler
