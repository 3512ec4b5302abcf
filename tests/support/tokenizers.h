// Where the published tokenizers lie that tests read.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace doppler::testing {

inline const std::vector<std::string>& tokenizer_names() {
  static const std::vector<std::string> names = {"tiny", "gemma3", "gemma2", "gptoss", "llama3_2", "qwen3"};
  return names;
}

// The folder of a tokenizer; empty when it has not been fetched. tiny's own is in the repository.
inline std::filesystem::path tokenizer_folder(const std::string& name) {
  if (name == "tiny") return std::filesystem::path(DOPPLER_TEST_DATA) / "tokens" / "tiny";
  const char* set = std::getenv("DOPPLER_TOKENIZERS");
  const std::filesystem::path folder =
      (set ? std::filesystem::path(set) : std::filesystem::path(DOPPLER_BINARY_DIR) / "tokenizers") / name;
  std::error_code ec;
  return std::filesystem::exists(folder / "tokenizer.json", ec) ? folder : std::filesystem::path();
}

// A missing tokenizer passes unseen nowhere: the continuous integration fails, a person is told.
#define DOPPLER_NEEDS_TOKENIZER(name)                                                                               \
  if (::doppler::testing::tokenizer_folder(name).empty()) {                                                         \
    const std::string message = "the tokenizer '" + std::string(name) +                                             \
                                "' is not there: run tools/setup.sh test, or set DOPPLER_TOKENIZERS to its folder"; \
    if (std::getenv("CI")) FAIL() << message;                                                                       \
    GTEST_SKIP() << message;                                                                                        \
  }

}  // namespace doppler::testing

// Tests name what is here without its namespace.
namespace doppler {
using namespace testing;
}  // namespace doppler
