// The one part of normalisation that differs between a native program and a page: utf8proc here
// (normal_form_utf8proc.cpp), the browser's String.normalize there.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/unicode.h"

namespace doppler {

// Appends a stretch without characters newer than the normal forms, in its normal form, as UTF-8.
void append_normal(std::string& out, const std::vector<char32_t>& codes, NormalForm form);

}  // namespace doppler
