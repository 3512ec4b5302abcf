// One answer without a model: what is added to the logits, and the log-probabilities that are reported.
#include "engine/generation.h"

#include <gtest/gtest.h>

#include <cmath>

namespace doppler {
namespace {

const std::vector<float> kLogits = {1, 3, 2.5f, 0, -1};

std::vector<int32_t> write(const GenerateOptions& options, int tokens) {
  Answer answer(std::vector<int32_t>{1, 1, 1}, options, nullptr, 100);
  for (int i = 0; i < tokens; ++i) answer.push(answer.choose(kLogits));
  return answer.result().token_ids;
}

TEST(Answer, BiasMovesAndBansTokens) {
  EXPECT_EQ(write({.edits = {.bias = {{3, 100}}}}, 1), (std::vector<int32_t>{3}));
  EXPECT_EQ(write({.edits = {.bias = {{1, -100}}}}, 1), (std::vector<int32_t>{2}));
}

TEST(Answer, PenaltiesCountTheAnswerAndNotThePrompt) {
  // 3 − 0.3 n against 2.5 − 0.3 m: token 1 until it stands at 2.4.
  EXPECT_EQ(write({.edits = {.frequency_penalty = 0.3f}}, 4), (std::vector<int32_t>{1, 1, 2, 1}));
  // Once each, so both lose the same and token 1 leads again.
  EXPECT_EQ(write({.edits = {.presence_penalty = 0.6f}}, 4), (std::vector<int32_t>{1, 2, 1, 1}));
}

TEST(Answer, LogprobsAreTheModelsOwn) {
  GenerateOptions options{.edits = {.bias = {{3, 100}}}, .logprobs = 2};
  Answer answer(std::vector<int32_t>{1}, options, nullptr, 100);
  answer.push(answer.choose(kLogits));
  double total = 0;
  for (const float logit : kLogits) total += std::exp(logit);
  ASSERT_EQ(answer.result().logprobs.size(), 1u);
  const TokenLogprobs& got = answer.result().logprobs[0];
  EXPECT_FLOAT_EQ(got.chosen, static_cast<float>(0 - std::log(total)));
  ASSERT_EQ(got.likeliest.size(), 2u);
  EXPECT_EQ(got.likeliest[0].first, 1);
  EXPECT_FLOAT_EQ(got.likeliest[0].second, static_cast<float>(3 - std::log(total)));
  EXPECT_EQ(got.likeliest[1].first, 2);
}

TEST(Answer, LogprobsOfMoreTokensThanThereAre) {
  GenerateOptions options{.logprobs = 20};
  Answer answer(std::vector<int32_t>{1}, options, nullptr, 100);
  answer.push(answer.choose(kLogits));
  EXPECT_EQ(answer.result().logprobs[0].likeliest.size(), kLogits.size());
}

}  // namespace
}  // namespace doppler
