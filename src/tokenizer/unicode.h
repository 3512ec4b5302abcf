// Properties and normal forms of characters, in the Unicode versions that Hugging Face's tokenizers use.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

// What the Unicode library does: utf8proc (normal_form_utf8proc.cpp), or the browser. Appends a run without
// characters newer than the normal forms, in its normal form, as UTF-8.
void append_normal(std::string& out, const std::vector<char32_t>& codes, NormalForm form);

// Where Hugging Face's tokenizers and our Unicode libraries follow different versions of Unicode (unicode_tables.cpp,
// which tools/unicode_tables.mjs generates).
struct CodeRange {
  char32_t first, last;  // inclusive
};

struct LaterCategory {
  char32_t first, last;
  const char* category;  // "Lo", "Nd", …
};

struct LaterLowercase {
  char32_t first, last;
  int32_t add;
};

const std::vector<LaterCategory>& later_categories();
const std::vector<CodeRange>& later_normalization();
const std::vector<LaterLowercase>& later_lowercase();

// The alphabet of byte-level tokenizers: each of the 256 bytes is written as one printable character.
// Each byte's character, in UTF-8.
const std::array<std::string, 256>& byte_characters();

// The byte that a character stands for, or -1.
int byte_of_character(char32_t code);

}  // namespace doppler
