#pragma once

#include <cstdint>
#include <vector>

#include "engine/random.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// The same tokens on every machine and in every run.
inline std::vector<int32_t> random_prompt(int tokens, int vocab) {
  constexpr uint64_t kSeed = 1;
  std::vector<int32_t> ids;
  for (int i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>(philox(kSeed, static_cast<uint64_t>(i))[0] % static_cast<uint32_t>(vocab)));
  }
  return ids;
}

// So many tokens of a plain story, told again and again.
inline std::vector<int32_t> text_prompt(const Tokenizer& tokenizer, int tokens) {
  constexpr std::string_view kStory =
      "Once upon a time there was a small boat that lay in the grass beside a lake. Every morning a girl came with her "
      "dog, looked at the water, and asked the boat where it would go if it could. The boat did not know. One day the "
      "rain did not stop, the lake grew, and the grass was gone. Then the boat began to swim. ";
  std::vector<int32_t> ids = tokenizer.encode("", true);
  const std::vector<int32_t> story = tokenizer.encode(kStory, false);
  while (!story.empty() && static_cast<int>(ids.size()) < tokens) ids.insert(ids.end(), story.begin(), story.end());
  ids.resize(static_cast<size_t>(tokens));
  return ids;
}

}  // namespace doppler
