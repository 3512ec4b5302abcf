// Reads GBNF, the grammar language of llama.cpp.
#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace doppler {

// Adds the grammar's rules; returns `root`. Fails with line and column.
Rule read_gbnf(std::string_view text, Expressions& expressions);

}  // namespace doppler
