// Properties and normal forms of characters, in the Unicode versions that Hugging Face's tokenizers use.
#pragma once

#include <string>
#include <string_view>

namespace doppler {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be valid UTF-8. Follows Unicode 9: characters that are newer stay as they are. Time O(n log n) whatever
// the text, long runs of combining marks included.
std::string normalize(std::string_view text, NormalForm form);

// Every character on its own: a final sigma is like any other.
std::string lowercase(std::string_view text);

bool is_whitespace(char32_t code);  // Unicode White_Space
bool is_word(char32_t code);        // alphabetic, mark, decimal digit, connector punctuation, joiner
bool is_numeric(char32_t code);     // general category N

}  // namespace doppler
