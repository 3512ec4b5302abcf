// The program, called as a person calls it.
#pragma once

#include <stdlib.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/files.h"
#include "support/scratch.h"

namespace doppler::testing {

struct Outcome {
  int code = -1;
  std::string out, err;  // standard output and error
};

// `PROGRAM ARGUMENTS` through a shell, from the folder of the sources, with `input` piped in. The arguments may end in
// a redirection of the output; `before` are commands for the shell.
inline Outcome call_as(const std::string& program, const std::string& arguments, const std::string& input,
                       const std::string& before) {
  const Scratch scratch;
  spill(scratch / "input", input);
  const std::string command = "cd '" DOPPLER_SOURCE_DIR "' && " + before + " && cat '" + (scratch / "input").string() +
                              "' | '" + program + "' 2>'" + (scratch / "err").string() + "' " + arguments;
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return outcome;
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.err = read_text_file(scratch / "err");
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

inline Outcome call(const std::string& arguments, const std::string& input = "", const std::string& before = "true") {
  return call_as(DOPPLER_BINARY_DIR "/doppler", arguments, input, before);
}

// The call must end with this code and say these words.
inline void expect_outcome(const std::string& arguments, int code, const std::string& words) {
  const Outcome outcome = call(arguments);
  const std::string said = outcome.out + outcome.err;
  EXPECT_EQ(outcome.code, code) << arguments << "\n" << said;
  EXPECT_NE(said.find(words), std::string::npos) << arguments << "\n" << said;
}

}  // namespace doppler::testing
