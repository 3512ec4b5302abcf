// The greedy choice against the CPU's argmax: ties, sizes, penalty, what is no number, and what it leaves in the state.
#include "gpu/ops/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/sampler.h"
#include "gpu/attention_problem.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

struct Chosen {
  uint32_t token;
  DecodeState state;
  std::vector<uint32_t> out_tokens, seen;
};

Chosen choose(Device& device, const std::vector<float>& logits, const std::vector<uint32_t>& seen, float penalty,
              const DecodeState& before = {}, uint32_t advance = 1) {
  const uint32_t vocab = static_cast<uint32_t>(logits.size());
  const TokenBuffers tokens = {upload_state(device, before), device.create_buffer("out_tokens", 32),
                               upload(device, "seen", seen)};
  const Buffer pairs = device.create_buffer("pairs", 8 * argmax_pairs(vocab));
  Recording recording(device, "argmax");
  record_argmax_parts(recording, "parts", upload(device, "logits", logits), tokens.seen, pairs, vocab, penalty);
  record_argmax_pick(recording, "pick", pairs, argmax_pairs(vocab), tokens, advance);
  device.submit(recording);
  Chosen c;
  c.state = read<DecodeState>(device, tokens.state.buffer, 1)[0];
  c.out_tokens = read<uint32_t>(device, tokens.out_tokens.buffer, 8);
  c.seen = read<uint32_t>(device, tokens.seen.buffer, seen.size());
  c.token = c.state.token;
  return c;
}

std::vector<uint32_t> no_bits(size_t vocab) { return std::vector<uint32_t>(vocab / 32 + 1); }

TEST(Argmax, AgreesWithTheCpu) {
  DOPPLER_NEED_DEVICE(device);
  std::mt19937 bits(1);
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const size_t vocab : {1u, 2u, 31u, 255u, 256u, 257u, 2047u, 2048u, 2049u, 5000u, 70001u}) {
    std::vector<std::vector<float>> all = {random_floats(vocab, 5, static_cast<uint32_t>(vocab))};
    all.push_back(all[0]);
    for (float& v : all.back()) v = std::round(v);  // many ties
    all.push_back(all[0]);
    for (float& v : all.back()) v = -std::abs(v);
    all.push_back(std::vector<float>(vocab, 0));
    for (size_t i = 0; i < vocab; i += 2) all.back()[i] = -0.0f;  // equal to 0
    all.push_back(std::vector<float>(vocab, -inf));
    all.push_back(std::vector<float>(vocab, nan));
    all.push_back(all[0]);
    for (size_t i = 0; i < vocab; ++i) {
      if (bits() % 3 == 0) all.back()[i] = bits() % 2 == 0 ? nan : -inf;
    }
    all.push_back(all.back());
    all.back()[bits() % vocab] = inf;
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string where = "vocab " + std::to_string(vocab) + " list " + std::to_string(i);
      const Chosen c = choose(device, all[i], no_bits(vocab), 1);
      // An infinity below a number is the only thing that a device does not see.
      const bool seen = std::any_of(all[i].begin(), all[i].end(), [&](float v) { return std::isnan(v) || v == inf; }) ||
                        std::none_of(all[i].begin(), all[i].end(), [](float v) { return std::isfinite(v); });
      if (!seen) {
        const uint32_t want = static_cast<uint32_t>(argmax(all[i]));
        EXPECT_EQ(c.token, want) << where;
        EXPECT_EQ(c.out_tokens[0], want) << where;
        continue;
      }
      EXPECT_LT(c.token, vocab) << where;
      EXPECT_EQ(c.out_tokens[0], ~c.token) << where;
    }
  }
}

TEST(Argmax, PenalisesWhatWasSeen) {
  DOPPLER_NEED_DEVICE(device);
  const size_t vocab = 3000;
  for (const float penalty : {1.5f, 0.5f}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      std::vector<float> logits = random_floats(vocab, 3, seed);
      if (seed % 2 == 1) {
        for (float& v : logits) v = -std::abs(v);
      }
      std::vector<int32_t> text;
      std::vector<uint32_t> seen = no_bits(vocab);
      for (size_t i = seed; i < vocab; i += 2) {
        text.push_back(static_cast<int32_t>(i));
        seen[i / 32] |= 1u << (i % 32);
      }
      Sampler sampler({.temperature = 0, .repeat_penalty = penalty});
      const uint32_t want = static_cast<uint32_t>(sampler.sample(logits, text, 0));
      const Chosen c = choose(device, logits, seen, penalty);
      EXPECT_EQ(c.token, want);
      seen[want / 32] |= 1u << (want % 32);
      EXPECT_EQ(c.seen, seen);
    }
  }
}

TEST(Argmax, AdvancesTheState) {
  DOPPLER_NEED_DEVICE(device);
  const std::vector<float> logits = {1, 5, 2};
  const Chosen c = choose(device, logits, no_bits(3), 1, {.position = 7, .token = 9, .draw = 4, .produced = 2}, 3);
  EXPECT_EQ(c.state.position, 10u);
  EXPECT_EQ(c.state.token, 1u);
  EXPECT_EQ(c.state.draw, 5u);
  EXPECT_EQ(c.state.produced, 3u);
  EXPECT_EQ(c.out_tokens, (std::vector<uint32_t>{0, 0, 1, 0, 0, 0, 0, 0}));
  // Past the end of out_tokens the token is still in the state.
  EXPECT_EQ(choose(device, logits, no_bits(3), 1, {.produced = 8}).out_tokens, std::vector<uint32_t>(8));
}

TEST(Argmax, ChoosesForEachColumn) {
  DOPPLER_NEED_DEVICE(device);
  constexpr uint32_t kPairs = 700, kColumns = 5, kRoom = 8;
  std::mt19937 bits(3);
  std::vector<uint32_t> pairs(size_t{kRoom} * kPairs * 2);
  std::vector<uint32_t> expected(kRoom, 77);  // past the last column nothing is written
  for (uint32_t c = 0; c < kRoom; ++c) {
    uint32_t best = 0, key = 0;
    for (uint32_t i = 0; i < kPairs; ++i) {
      uint32_t* pair = &pairs[(size_t{c} * kPairs + i) * 2];
      pair[0] = 0x80000000u + bits() % 200;           // many ties
      if (c == 1 && i == 300) pair[0] = 0xffffffffu;  // NaN
      pair[1] = i * 3;
      if (pair[0] > key) key = pair[0], best = pair[1];
    }
    if (c < kColumns) expected[c] = c == 1 ? ~best : best;
  }
  const Buffer out = upload(device, "out_tokens", std::vector<uint32_t>(kRoom, 77));
  Recording recording(device, "pick");
  record_batch_pick(recording, "pick", upload(device, "state", std::vector<uint32_t>{9, 0, kColumns, 0}),
                    upload(device, "pairs", pairs), kPairs, out, kRoom);
  device.submit(recording);
  EXPECT_EQ(read<uint32_t>(device, out, kRoom), expected);
}

}  // namespace
}  // namespace doppler::gpu
