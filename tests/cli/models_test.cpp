// Another engine, fetched when asked for, and models that a person names: ./test --models sets DOPPLER_TEST_MODELS.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/json.h"
#include "support/scratch.h"

namespace doppler {
namespace {

std::string output_of(const std::string& command, int& code) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  const int status = pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

Json ask(const std::string& arguments) {
  int code = 0;
  const std::string out =
      output_of("cd " DOPPLER_SOURCE_DIR " && " DOPPLER_BINARY_DIR "/doppler " + arguments + " </dev/null", code);
  EXPECT_EQ(code, 0) << out;
  return parse_json(out, arguments);
}

class Models : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("DOPPLER_TEST_MODELS")) GTEST_SKIP() << "fetches from the net: ./test --models";
  }
};

TEST_F(Models, LlamaCppSaysWhatWeSayOnTheExportedModel) {
  for (const char* prompt : {"2,513,665,442,365,992,418", "2,4,1003,273,7", "2,300,400,500,600"}) {
    const Json result =
        ask(std::string("bench peers models/tiny --quant same --runs 1 --tokens 31 --json --prompt-ids ") + prompt);
    ASSERT_EQ(result["engines"].size(), 2u);
    EXPECT_EQ(result["engines"][0]["ids"].size(), 32u);
    EXPECT_EQ(result["engines"][0]["ids"], result["engines"][1]["ids"]) << prompt;
  }
}

// DOPPLER_TEST_GGUF=FILE[:FILE…] names models that a person has: GGUF files, or whatever else `doppler run` takes.
class NamedModels : public Models {
 protected:
  void SetUp() override {
    Models::SetUp();
    const char* names = std::getenv("DOPPLER_TEST_GGUF");
    std::istringstream list(names ? names : "");
    for (std::string name; std::getline(list, name, ':');) {
      if (!name.empty()) files_.push_back(name);
    }
    if (files_.empty()) GTEST_SKIP() << "names no model: DOPPLER_TEST_GGUF=FILE ./test --models";
  }
  std::vector<std::string> files_;
};

Json tokens_of(const std::string& model, const std::string& backend) {
  return ask("run '" + model +
             "' --raw 'Once upon a time' --max-tokens 8 --temperature 0 --context 64 --json --backend " +
             backend)["token_ids"];
}

TEST_F(NamedModels, TheKernelsSayWhatPlainCodeSays) {
  for (const std::string& file : files_) {
    const Json tokens = tokens_of(file, "cpu");
    EXPECT_GT(tokens.size(), 0u) << file;
    EXPECT_EQ(tokens, tokens_of(file, "ref")) << file;
  }
}

// What becomes an artefact, and a GGUF of that, are the same weights: an export keeps types.
TEST_F(NamedModels, WhatIsConvertedAndExportedSaysTheSame) {
  for (const std::string& file : files_) {
    Scratch scratch;
    const bool is_artefact = std::filesystem::exists(file + "/manifest.json");
    const std::string artefact = is_artefact ? file : (scratch / "artefact").string(),
                      exported = (scratch / "exported.gguf").string();
    if (!is_artefact) ask("convert '" + file + "' '" + artefact + "' --json");
    ask("convert '" + artefact + "' '" + exported + "' --json");
    EXPECT_TRUE(ask("verify '" + artefact + "' --json")["faults"].empty()) << file;
    const Json tokens = tokens_of(artefact, "cpu");
    EXPECT_GT(tokens.size(), 0u) << file;
    EXPECT_EQ(tokens, tokens_of(exported, "cpu")) << file;
  }
}

}  // namespace
}  // namespace doppler
