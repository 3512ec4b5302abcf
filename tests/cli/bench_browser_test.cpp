// `doppler bench inference --surface browser`: the native program's workload in Chromium, and the native program's
// result.
#include "base/json.h"
#include "support/json_schema.h"
#include "support/program.h"

namespace doppler {
namespace {

// The page is built by `npm run build`, playwright-core comes from tools/setup.sh; ./test sees to both.
bool browser_is_here() {
  return fs::exists(DOPPLER_SOURCE_DIR "/web/dist/lib/doppler.wasm") &&
         fs::exists(DOPPLER_BINARY_DIR "/playwright/version");
}

Json read(const fs::path& file) { return parse_json(slurp(file), file.string()); }

void expect_schema(const Json& result) {
  static const testing::JsonSchema schema(read(DOPPLER_SOURCE_DIR "/bench/result.schema.json"));
  for (const std::string& fault : schema.faults(result)) ADD_FAILURE() << fault;
}

TEST(BrowserBench, WritesTheNativeResultColdAndThenFromWhatItKept) {
  if (!browser_is_here()) GTEST_SKIP() << "the page is not built";
  const Scratch scratch;
  const std::string at = scratch.path().string(), model = at + "/model", source = "tests/data/models/llama-a";
  ASSERT_EQ(call("convert " + source + " " + model + " --no-tokenizer --quant f32").code, 0);
  const std::string bench = "bench inference " + model + " --prompt-tokens 5 --tokens 7 --runs 2 --reference " +
                            source + "/reference.json --depths 0,9 --prompts 3";
  const std::string browser = " --surface browser --profile-dir " + at + "/profile";

  Outcome outcome = call(bench + browser + " --output " + at + "/browser.json --plot " + at + "/speed.svg");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("model F32 on webgpu in Chromium"), std::string::npos) << outcome.out;
  EXPECT_NE(slurp(scratch / "speed.svg").find("webgpu in a browser"), std::string::npos);
  const Json cold = read(scratch / "browser.json");
  expect_schema(cold);
  EXPECT_EQ(cold["surface"], "browser");
  EXPECT_GT(cold["load_ms"]["cold"].get<double>(), 0);
  EXPECT_GT(cold["load_ms"]["warm"].get<double>(), 0);
  EXPECT_EQ(cold["decode_tok_s"]["runs"].size(), 2u);
  EXPECT_GT(cold["bandwidth"]["share"].get<double>(), 0);
  EXPECT_GT(cold["memory"]["peak_host_bytes"].get<double>(), 1 << 20);
  EXPECT_EQ(cold["sweeps"]["depth"].size(), 2u);
  EXPECT_EQ(cold["sweeps"]["prompt"].size(), 1u);

  ASSERT_EQ(call(bench + " --backend cpu --output " + at + "/native.json").code, 0);
  const Json native = read(scratch / "native.json");
  expect_schema(native);
  EXPECT_EQ(native["surface"], "native");
  EXPECT_EQ(cold["model"], native["model"]);
  EXPECT_EQ(cold["per_token"]["bytes"], native["per_token"]["bytes"]);
  EXPECT_EQ(cold["quality"]["token_match"], native["quality"]["token_match"]);
  EXPECT_NEAR(cold["quality"]["perplexity"].get<double>(), native["quality"]["perplexity"].get<double>(), 0.05);
  outcome = call("bench inference --compare " + at + "/native.json " + at + "/browser.json");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("decode_tok_s"), std::string::npos) << outcome.out;

  // The profile has the model now; a config says the rest. Looking into a layer is more dispatches or copies a token.
  outcome = call("bench inference " + model + browser + " --json --tap-layers 1 --decode-batch 3 --config " +
                 R"('{"workload": "xs", "tokens": 3, "runs": 1, "prompt_tokens": 4}' 2>/dev/null)");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const Json warm = parse_json(outcome.out, "the second run");
  expect_schema(warm);
  EXPECT_TRUE(warm["load_ms"]["cold"].is_null()) << "the second bench read the model from the network";
  EXPECT_EQ(warm["workload"]["name"], "xs");
  EXPECT_EQ(warm["workload"]["prompt_tokens"], 4);
  EXPECT_EQ(warm["workload"]["tapped_layers"], Json::array({1}));
}

TEST(BrowserBench, TellsInThePagesWordsWhyItCannot) {
  if (!browser_is_here()) GTEST_SKIP() << "the page is not built";
  const Scratch scratch;
  const fs::path model = scratch / "tiny", shard = model / "shard_00000.bin";
  fs::copy(DOPPLER_SOURCE_DIR "/models/tiny", model);
  std::string bytes = slurp(shard);
  bytes[bytes.size() / 2] ^= 1;
  spill(shard, bytes);
  expect_outcome("bench inference --surface browser --prompt-tokens 1 --tokens 1 " + model.string(), 4,
                 "arrived damaged");
}

TEST(BrowserBench, RefusesWhatAPageCannotDo) {
  const std::string bench = "bench inference --surface browser ";
  expect_outcome(bench + "--profile", 2, "rounds the GPU's clock");
  expect_outcome(bench + "--threads 2", 2, "on the GPU alone");
  expect_outcome(bench + "--backend cpu", 2, "no other backend");
  expect_outcome(bench + "--device 0", 2, "the browser does");
  expect_outcome(bench + "--gpu-memory 1G", 2, "mapped files");
  expect_outcome(bench + "--versus models/tiny --profile-dir /tmp/nobody", 2, "cannot share a profile");
  expect_outcome(bench + "README.md", 2, "RDRR folders only");
  expect_outcome(bench + "--profile-dir /dev/null/profile", 3, "a folder cannot be made");
  expect_outcome("bench inference --profile-dir /tmp/nobody", 2, "Add --surface browser");
  EXPECT_FALSE(fs::exists("/tmp/nobody"));
}

}  // namespace
}  // namespace doppler
