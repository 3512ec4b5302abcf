// Options of the command line that take numbers.
#include "support/program.h"

namespace doppler {
namespace {

TEST(Numbers, NothingIsNotZero) {
  for (const char* option : {"--prompt-ids ''", "--prompt-ids= hello", "--seed '' hello", "--max-tokens '' hello",
                             "--temperature '' hello", "--gpu-memory '' hello"}) {
    expect_outcome(std::string("run --backend cpu --max-tokens 1 ") + option, 2, "");
  }
  expect_outcome("run --backend cpu --prompt-ids ''", 2, "a number is needed, and nothing was given");
  expect_outcome("run --backend cpu --prompt-ids ,", 2, "--prompt-ids");
}

TEST(Numbers, WhatIsTooLargeIsRefused) {
  const std::string run = "run hello --backend cpu --max-tokens 1 --json ";
  expect_outcome(run + "--seed 18446744073709551616", 2, "18446744073709551616 is too large");
  expect_outcome(run + "--seed 0x10000000000000000", 2, "is too large");
  expect_outcome(run + "--seed -1", 2, "-1 is negative");
  expect_outcome(run + "--gpu-memory 18446744073709551616", 2, "is too large");
  expect_outcome(run + "--gpu-memory 99999999999GiB", 2, "--gpu-memory");
  expect_outcome(run + "--max-tokens 4294967297", 2, "--max-tokens");
  expect_outcome(run + "--seed 18446744073709551615", 0, "\"seed\":18446744073709551615");
}

}  // namespace
}  // namespace doppler
