#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace doppler {

// Token ids from a file: a numpy array of whole numbers (.npy), JSON (a list, or an object with prompt_ids and perhaps
// greedy_ids), or numbers with blanks or commas between them.
std::vector<int32_t> read_token_file(const std::filesystem::path& path);

}  // namespace doppler
