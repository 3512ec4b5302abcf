#include "engine/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace doppler {
namespace {

// A model of four words that always expects the word after the last with probability 0.7.
class Counting : public Executor {
 public:
  std::string_view name() const override { return "counting"; }
  KvCache& cache() override { return cache_; }
  void set_tap(Tap) override {}
  size_t context_bytes() const override { return 0; }
  std::span<const float> run(std::span<const BatchItem> batch) override {
    const BatchItem& item = batch[0];
    windows += item.sequence->length() == 0;
    reserve_room(cache_, *item.sequence, static_cast<int>(item.tokens.size()));
    cache_.append(*item.sequence, item.tokens, item.phase);
    logits_.clear();
    for (const int32_t token : item.tokens) {
      for (int32_t next = 0; next < 4; ++next) logits_.push_back(std::log(next == (token + 1) % 4 ? 0.7f : 0.1f) + 5);
    }
    return logits_;
  }
  int windows = 0;  // texts begun

 private:
  KvCache cache_{{.groups = {{.window = 0, .layers = 1}}, .places = {{0, 0}}, .page_tokens = 4}, {.pages = 8}};
  std::vector<float> logits_;
};

TEST(Perplexity, IsTheInverseOfTheGeometricMeanProbability) {
  Counting executor;
  EXPECT_NEAR(perplexity(executor, std::vector<int32_t>{0, 1, 2, 3, 0}, 2), 1 / 0.7, 1e-5);
  EXPECT_EQ(executor.windows, 2);
  EXPECT_NEAR(perplexity(executor, std::vector<int32_t>{0, 0, 0, 0, 0}, 4), 1 / 0.1, 1e-4);
  EXPECT_NEAR(perplexity(executor, std::vector<int32_t>{0, 1, 3}, 2), 1 / std::sqrt(0.7 * 0.1), 1e-4);
}

TEST(Perplexity, RefusesATextShorterThanItsWindow) {
  Counting executor;
  EXPECT_THROW(perplexity(executor, std::vector<int32_t>{0, 1}, 2), Failure);
}

TEST(Perplexity, OverlappingWindowsCountEveryTokenOnce) {
  Counting executor;
  const std::vector<int32_t> tokens{0, 1, 2, 3, 0, 1, 2, 3, 0};
  const TextScore score = score_text(executor, nullptr, tokens, {4, 2});
  EXPECT_EQ(score.tokens, 8u);
  EXPECT_NEAR(score.perplexity, 1 / 0.7, 1e-5);
  EXPECT_EQ(executor.windows, 3);
  EXPECT_THROW(score_text(executor, nullptr, tokens, {4, 5}), Failure);
}

TEST(Perplexity, AModelAgreesWithItself) {
  Counting executor, other;
  const TextScore score = score_text(executor, &other, std::vector<int32_t>{0, 1, 2, 3, 0}, {4, 0});
  EXPECT_NEAR(score.kl, 0, 1e-9);
  EXPECT_EQ(score.top1_agreement, 1);
}

TEST(Perplexity, DivergenceIsTheTextbooks) {
  const std::vector<float> p{std::log(0.5f), std::log(0.5f)}, q{std::log(0.25f) + 3, std::log(0.75f) + 3};
  EXPECT_NEAR(kl_divergence(p, q), 0.5 * std::log(2) + 0.5 * std::log(2.0 / 3), 1e-6);
  EXPECT_NEAR(kl_divergence(q, p), 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-6);
}

}  // namespace
}  // namespace doppler
