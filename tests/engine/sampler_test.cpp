#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "engine/random.h"

namespace doppler {
namespace {

std::map<int32_t, int> draw_many(const Sampling& sampling, const std::vector<float>& logits, int count = 20000) {
  Sampler sampler(sampling);
  std::map<int32_t, int> seen;
  for (int i = 0; i < count; ++i) ++seen[sampler.sample(logits, {}, static_cast<uint64_t>(i))];
  return seen;
}

TEST(Philox, MatchesThePublishedVectors) {
  const auto zero = philox(0, 0);
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  double sum = 0;
  int low = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const float u = uniform(42, i);
    ASSERT_GE(u, 0.f);
    ASSERT_LT(u, 1.f);
    sum += u;
    low += u < 0.1f;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_NEAR(low / 100000.0, 0.1, 0.005);
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOnTies) {
  Sampler sampler(Sampling{});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 3, 5}, {}, 0), 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sampler.sample(std::vector<float>{nan, -2, nan, -1}, {}, 0), 3);
}

TEST(Sampler, DrawsWithTheSoftmaxProbabilities) {
  const auto seen = draw_many({.temperature = 2, .seed = 7}, {0, 2, 4, -1000});
  const double a = 1, b = std::exp(1), c = std::exp(2), total = a + b + c;
  EXPECT_NEAR(seen.at(0) / 20000.0, a / total, 0.012);
  EXPECT_NEAR(seen.at(1) / 20000.0, b / total, 0.012);
  EXPECT_NEAR(seen.at(2) / 20000.0, c / total, 0.012);
  EXPECT_EQ(seen.count(3), 0u);
}

TEST(Sampler, TopKTopPAndMinPKeepOnlyTheLikeliest) {
  const std::vector<float> logits{std::log(0.1f), std::log(0.5f), std::log(0.15f), std::log(0.25f)};
  const auto ids = [&](Sampling sampling) {
    sampling.temperature = 1;
    std::vector<int32_t> kept;
    for (const auto& [id, count] : draw_many(sampling, logits, 4000)) kept.push_back(id);
    return kept;
  };
  EXPECT_EQ(ids({.top_k = 2}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(ids({.top_p = 0.7f}), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(ids({.top_p = 0.0f}), (std::vector<int32_t>{1}));
  EXPECT_EQ(ids({.min_p = 0.29f}), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(ids({.top_k = 100}), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(Sampler, RepetitionPenaltyAppliesOnceInTheRightDirection) {
  Sampler sampler(Sampling{.repeat_penalty = 2});
  const std::vector<int32_t> text{0, 0, 0};
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 1.4f, 1.6f}, text, 0), 2);  // 3 → 1.5
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f, -9}, text, 0), 1);  // −1 → −2
}

TEST(Sampler, SameSeedSameDrawsOtherSeedOthers) {
  const std::vector<float> logits(100, 0.f);
  const auto draws = [&](uint64_t seed) {
    Sampler sampler(Sampling{.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 50; ++i) ids.push_back(sampler.sample(logits, {}, i));
    return ids;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
}

TEST(Sampler, RefusesOptionsThatMakeNoSense) {
  for (const Sampling& bad :
       {Sampling{.temperature = -1}, Sampling{.top_k = -1}, Sampling{.top_p = 1.5f}, Sampling{.min_p = -0.1f},
        Sampling{.repeat_penalty = 0}, Sampling{.temperature = std::numeric_limits<float>::quiet_NaN()}}) {
    EXPECT_THROW(Sampler{bad}, Failure);
  }
}

}  // namespace
}  // namespace doppler
