// Models by name through the program, as a person calls it.
#include <gmock/gmock.h>

#include "hub/local_hub.h"
#include "support/program.h"

namespace doppler {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kQuestion = " 'What color is the sky?' --backend cpu";
constexpr const char* kAnswer = "The color of the sky is blue.\n";

class HubProgram : public ::testing::Test {
 protected:
  Outcome doppler(const std::string& arguments) const {
    return testing::call(arguments, "",
                         "export HF_ENDPOINT=" + hub.endpoint() + " HF_HUB_CACHE=" + (hub.scratch() / "hub").string() +
                             " DOPPLER_CACHE=" + (hub.scratch() / "own").string() + " HF_TOKEN= HF_HUB_OFFLINE=");
  }
  void expect_said(const std::string& arguments, int code, const std::string& words) const {
    const Outcome outcome = doppler(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr(words)) << arguments;
  }
  void add_tiny_gguf() const {
    fs::create_directories(hub.repo());
    expect_said("convert models/tiny " + (hub.repo() / "tiny-Q4_K_M.gguf").string(), 0, "");
  }
  LocalHub hub;
};

TEST_F(HubProgram, RunsWhatIsNamed) {
  add_tiny_gguf();
  EXPECT_EQ(doppler(std::string("run hf:org/repo") + kQuestion).out, kAnswer);
  EXPECT_EQ(doppler(std::string("run --offline hf:org/repo:Q4_K_M") + kQuestion).out, kAnswer);
  EXPECT_EQ(doppler("run " + hub.endpoint() + "/org/repo/resolve/main/tiny-Q4_K_M.gguf" + kQuestion).out, kAnswer);
  EXPECT_EQ(doppler("run " + hub.cdn() + "/repos/org/repo/tiny-Q4_K_M.gguf" + kQuestion).out, kAnswer);
  EXPECT_EQ(doppler("run " + hub.cache().string() + kQuestion).out, kAnswer) << "the cache's own folder";
}

TEST_F(HubProgram, RunsAnArtefactOfTheHub) {
  for (const auto& item : fs::directory_iterator(DOPPLER_SOURCE_DIR "/models/tiny"))
    hub.add(item.path().filename(), testing::slurp(item.path()));
  EXPECT_EQ(doppler(std::string("run hf:org/repo") + kQuestion).out, kAnswer);
  expect_said("verify hf:org/repo", 0, "is sound");
}

TEST_F(HubProgram, PullsAndTellsWhatItWouldDo) {
  add_tiny_gguf();
  const Outcome plan = doppler("pull hf:org/repo --dry-run");
  EXPECT_THAT(plan.out, AllOf(HasSubstr("tiny-Q4_K_M.gguf"), HasSubstr("14.4 MB to fetch"),
                              HasSubstr("it fits, at its longest context of 1024")));
  EXPECT_FALSE(fs::exists(hub.cache())) << "nothing is kept of a dry run";
  EXPECT_THAT(doppler("pull hf:org/repo").out, EndsWith("/tiny-Q4_K_M.gguf\n"));
  EXPECT_THAT(doppler("pull hf:org/repo --dry-run").out, HasSubstr("nothing to fetch"));
  expect_said("list", 0, "tiny-Q4_K_M.gguf");
  expect_said("du", 0, "hf:org/repo");
  expect_said("rm hf:org/repo", 0, "is gone, which frees 14.4 MB");
  expect_said("list", 0, "no models are here");
  expect_said("rm hf:org/repo", 2, "nothing of this name is in the cache");
  expect_said("rm models/tiny", 2, "only models in the cache are removed");
}

TEST_F(HubProgram, ReckonsACheckpointBeforeItIsHere) {
  for (const char* name : {"config.json", "model.safetensors"})
    hub.add(name, testing::slurp(fs::path(DOPPLER_TEST_DATA "/models/gemma3-a") / name));
  hub.add("tokenizer.json", testing::slurp(DOPPLER_SOURCE_DIR "/models/tiny/tokenizer.json"));
  const Json plan = parse_json(doppler("pull hf:org/repo:q8_0 --dry-run --json").out, "plan");
  expect_said("convert hf:org/repo " + (hub.scratch() / "out").string() + " --quant q8_0", 0, "weights/s");
  const Json facts = parse_json(doppler("inspect --json " + (hub.scratch() / "out").string()).out, "facts");
  EXPECT_EQ(plan["needs"]["weights"].get<uint64_t>(), facts["weight_bytes"].get<uint64_t>());
  EXPECT_EQ(plan["needs"]["bytes"].get<uint64_t>(),
            facts["memory"]["weights"].get<uint64_t>() + facts["memory"]["kv_cache"].get<uint64_t>());
  expect_said("inspect hf:org/repo", 0, "(gemma3)");  // converted into the cache
  expect_said("tokenize hf:org/repo Hello", 0, "");
}

TEST_F(HubProgram, SaysWhatIsWrong) {
  expect_said("run hf:org/none Hello", 3, "there is no such model, or it is private");
  expect_said("run hf:org Hello extra", 2, "");
  expect_said("pull models/tiny", 2, "no name of a model on the hub");
  expect_said("pull hf:a/b/c", 2, "hf:org/repo[@revision]");
  expect_said("run --offline hf:org/none Hello", 3, "nothing may be fetched");
}

}  // namespace
}  // namespace doppler
