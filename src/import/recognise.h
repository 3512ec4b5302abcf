// What a path that a person named holds.
#pragma once

#include <filesystem>

namespace doppler {

// The path to open: an artefact's folder, a GGUF file, or a checkpoint's folder. Of a folder with one GGUF (in parts or
// whole) and no checkpoint that file, of a model's root in Hugging Face's cache (models--org--name) its snapshot. What
// people hand in by mistake is refused with what it is and what to do: a git-LFS pointer, an adapter alone, a tokenizer
// alone, pickles, weights for MLX, models for other programs, a folder of several GGUFs, an empty folder. A path with
// nothing there is returned as it is, and so is what is none of these: whoever opens it says what they miss.
std::filesystem::path recognise(const std::filesystem::path& path);

// Fails where config.json alone tells that the folder's weights, which are not here yet, will not be read: they are
// quantised for MLX, or by a method whose tensors cannot be decoded.
void check_before_weights(const std::filesystem::path& folder);

}  // namespace doppler
