// The alphabet of byte-level tokenizers: each of the 256 bytes is written as one printable character.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace doppler {

// Each byte's character, in UTF-8.
const std::array<std::string, 256>& byte_characters();

// The byte that a character stands for, or -1.
int byte_of_character(char32_t code);

}  // namespace doppler
