// Hashing under a key that every process draws anew: whoever makes a file cannot choose tokens or merges that meet in
// one place of a table. Nothing may depend on a hash but where an entry lies.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace doppler {

struct HashKey {
  uint64_t seed, factor;

  static const HashKey& of_process();

  uint64_t operator()(uint64_t word) const {
    // Both halves of the product: with the lower half alone, words that differ in their highest bits would meet under
    // every key.
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(word ^ seed) * factor;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  uint64_t operator()(std::string_view text) const {
    uint64_t hash = text.size();
    for (; text.size() >= 8; text.remove_prefix(8)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data(), 8);
      hash = (*this)(hash ^ word);
    }
    uint64_t word = 0;
    std::memcpy(&word, text.data(), text.size());
    return (*this)(hash ^ word);
  }
};

}  // namespace doppler
