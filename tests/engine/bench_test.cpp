// The measuring bench: its result's form, its judgement of text, and what it says of two measurements.
#include <gtest/gtest.h>

#include <cmath>

#include "base/files.h"
#include "bench/baselines.h"
#include "bench/inference.h"
#include "bench/statistics.h"
#include "support/json_schema.h"
#include "support/scratch.h"

namespace doppler {
namespace {

void quiet(std::string_view) {}

testing::JsonSchema schema() {
  const std::string path = DOPPLER_SOURCE_DIR "/bench/result.schema.json";
  return testing::JsonSchema(parse_json(read_text_file(path), path));
}

class Measured : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    InferenceWorkload workload = named_workload("xs");
    workload.backend = "cpu";
    workload.runs = 2;
    workload.tokens = 24;
    workload.depths = {0, 40};
    workload.prompt_lengths = {8, 33};
    result_ = new InferenceResult(bench_inference(DOPPLER_SOURCE_DIR "/models/tiny", workload, quiet));
  }
  static void TearDownTestSuite() { delete result_; }
  static InferenceResult* result_;
};
InferenceResult* Measured::result_ = nullptr;

TEST_F(Measured, TheResultIsWhatTheSchemaSays) {
  const Json json = result_->to_json();
  for (const std::string& fault : schema().faults(json)) ADD_FAILURE() << fault;
  Json broken = json;
  broken["model"].erase("hash");
  broken["token_ms"]["p50"] = "fast";
  broken["extra"] = 1;
  EXPECT_EQ(schema().faults(broken).size(), 3u);
}

TEST_F(Measured, FiguresAreThere) {
  EXPECT_EQ(result_->decode_tok_s.size(), 2u);
  EXPECT_EQ(result_->token_ms.size(), 48u);
  EXPECT_GT(result_->bandwidth_share(), 0);
  EXPECT_EQ(result_->by_depth.size(), 2u);
  EXPECT_EQ(result_->by_prompt.size(), 2u);
  EXPECT_GT(result_->by_prompt[1].tok_s, 0);
  EXPECT_TRUE(result_->quality.ok) << result_->quality.reasons[0];
  EXPECT_NE(result_->to_table().find("tok/s after 40 tokens"), std::string::npos);
}

TEST_F(Measured, SweepsBecomeAPicture) {
  const std::string svg = plot_sweeps({result_->to_json()});
  EXPECT_EQ(svg.compare(0, 4, "<svg"), 0);
  EXPECT_NE(svg.find("decode, tok/s"), std::string::npos);
  EXPECT_NE(svg.find("prefill, tok/s"), std::string::npos);
  Json without = result_->to_json();
  without["sweeps"] = {{"depth", Json::array()}, {"prompt", Json::array()}};
  EXPECT_THROW(plot_sweeps({without}), Failure);
}

TEST(Workload, NamesAreSizesAndOthersAreRefused) {
  EXPECT_EQ(named_workload("xs").prompt_tokens, 64);
  EXPECT_EQ(named_workload("xl").prompt_tokens, 8192);
  EXPECT_THROW(named_workload("huge"), Failure);
}

TEST(Quality, SeesWhatIsNoText) {
  const auto none = [](int32_t) { return false; };
  EXPECT_FALSE(judge_tokens({}, none).ok);
  std::vector<int32_t> text;
  for (int i = 0; i < 40; ++i) text.push_back(i * 7919 % 101);
  EXPECT_TRUE(judge_tokens(text, none).ok);
  EXPECT_FALSE(judge_tokens(std::vector<int32_t>(40, 16), none).ok);
  for (size_t i = 10; i < text.size(); ++i) text[i] = text[i - 3];
  EXPECT_NE(judge_tokens(text, none).reasons.at(0).find("cycle of 3"), std::string::npos);
  EXPECT_FALSE(judge_tokens(std::vector<int32_t>{1, 2, 3, 4}, [](int32_t id) { return id < 3; }).ok);
}

TEST(Comparison, IsSureOfWhatIsClearAndDoubtsWhatIsNoise) {
  const Ratio faster = ratio_of_medians({10, 11, 10, 12, 11}, {20, 22, 21, 23, 22});
  EXPECT_NEAR(faster.value, 2, 0.1);
  EXPECT_TRUE(faster.certain());
  EXPECT_GT(faster.low, 1.5);
  const Ratio noise = ratio_of_medians({10, 14, 9, 12, 11}, {11, 10, 13, 9, 12});
  EXPECT_FALSE(noise.certain());
  EXPECT_THROW(compare_results(Json::object(), Json::object(), "a", "b"), Failure);
}

TEST(Baselines, JudgeRatiosAndRefuseAFileThatIsNone) {
  const Json good = parse_json(R"({"cases": [{"name": "t", "model": "models/tiny", "backend": "cpu", "workload": "xs",
    "runs": 1, "ratios": {"p95_over_p50": [0, 1e9], "bandwidth_share": [5000, 6000]}}]})",
                               "test");
  const auto verdicts = check_baselines(good, DOPPLER_SOURCE_DIR, "cpu", quiet);
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_TRUE(verdicts[0].ok);
  EXPECT_FALSE(verdicts[1].ok);
  EXPECT_THROW(check_baselines(good, DOPPLER_SOURCE_DIR, "webgpu", quiet), Failure);
  EXPECT_THROW(check_baselines(Json::object(), DOPPLER_SOURCE_DIR, "cpu", quiet), Failure);
  const std::string path = DOPPLER_SOURCE_DIR "/bench/baselines.json";
  const Json shipped = parse_json(read_text_file(path), path);
  EXPECT_GE(shipped["cases"].size(), 1u);
}

}  // namespace
}  // namespace doppler
