// Cuts text into the pieces that are encoded one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_spec.h"

namespace doppler {

// Pieces that follow each other in one string; none is empty.
struct Pieces {
  std::string text;
  std::vector<size_t> ends;  // of each piece, rising; the last is text.size()
};

// `text` is valid UTF-8. `at_start`: it is the beginning of what the user gave.
Pieces run_pre_tokenizer(const std::vector<PreTokenizerStep>& steps, std::string text, bool at_start);

}  // namespace doppler
