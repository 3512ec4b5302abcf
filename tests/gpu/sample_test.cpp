// Sampling against the CPU's sampler: the same token for the same logits, seed and draw, unless the draw or a filter's
// border falls between two candidates more closely than sums in f32 can tell.
#include "gpu/ops/sample.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/random.h"
#include "engine/sampler.h"
#include "gpu/attention_problem.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

class GpuSampler {
 public:
  GpuSampler(Device& device, const SampleOptions& options, uint32_t vocab, const std::vector<uint32_t>& seen = {})
      : device_(device), recording_(device, "sample") {
    const uint32_t pairs = argmax_pairs(vocab);
    tokens_ = {upload_state(device, {}), device.create_buffer("out_tokens", 4096),
               upload(device, "seen", seen.empty() ? std::vector<uint32_t>(vocab / 32 + 1) : seen)};
    logits_ = device.create_buffer("logits", 4 * uint64_t{vocab});
    const SampleBuffers buffers = {logits_, device.create_buffer("pairs", 8 * uint64_t{pairs}),
                                   device.create_buffer("bins", sample_bin_bytes()),
                                   device.create_buffer("list", sample_list_bytes(vocab)), tokens_};
    record_argmax_parts(recording_, "max", logits_, tokens_.seen, buffers.pairs, vocab, options.penalty);
    record_sample(recording_, "sample", options, buffers, pairs, vocab, 1);
  }

  // The tokens of draws 0 … count - 1.
  std::vector<uint32_t> draw(const std::vector<float>& logits, int count) {
    write<float>(device_, logits_, std::span<const float>(logits));
    write<DecodeState>(device_, tokens_.state.buffer, std::vector<DecodeState>{{}});
    device_.submit(recording_, count);
    return read<uint32_t>(device_, tokens_.out_tokens.buffer, static_cast<size_t>(count));
  }

 private:
  Device& device_;
  Recording recording_;
  TokenBuffers tokens_;
  Buffer logits_;
};

// Is the GPU's choice what the CPU would have chosen with sums off by a few millionths? Tries the CPU's own rule with
// top-p and the uniform number moved by `slack` either way.
bool is_borderline(const std::vector<float>& logits, const SampleOptions& o, uint64_t draw, uint32_t token,
                   double slack) {
  struct Candidate {
    double weight;
    uint32_t id;
  };
  const double t = static_cast<double>(o.temperature);
  const double highest = static_cast<double>(logits[static_cast<size_t>(argmax(logits))]);
  std::vector<Candidate> all;
  for (uint32_t i = 0; i < logits.size(); ++i) {
    const double depth = (highest - static_cast<double>(logits[i])) / t;
    if (depth <= 104) all.push_back({std::exp(-depth), i});
  }
  std::stable_sort(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
    return logits[a.id] != logits[b.id] ? logits[a.id] > logits[b.id] : a.id < b.id;
  });
  if (o.top_k > 0 && o.top_k < all.size()) all.resize(o.top_k);
  double total = 0;
  for (const Candidate& c : all) total += c.weight;
  for (const double p_slack : {-slack, 0.0, slack}) {
    for (const double min_slack : {-slack, 0.0, slack}) {
      size_t keep = all.size();
      if (o.top_p < 1) {
        double sum = 0;
        for (keep = 0; keep < all.size() && (keep == 0 || sum < (static_cast<double>(o.top_p) + p_slack) * total);
             ++keep) {
          sum += all[keep].weight;
        }
      }
      while (keep > 1 && all[keep - 1].weight < static_cast<double>(o.min_p) * (1 + min_slack)) --keep;
      double kept = 0;
      for (size_t i = 0; i < keep; ++i) kept += all[i].weight;
      for (const double u_slack : {-slack, slack}) {
        double left = (static_cast<double>(uniform(o.seed, draw)) + u_slack) * kept;
        size_t i = 0;
        while (i + 1 < keep && (left -= all[i].weight) >= 0) ++i;
        // Anything between the two moved draws is as good.
        if (all[i].id == token) return true;
        if (u_slack < 0) {
          double further = left + 2 * slack * kept;
          while (i + 1 < keep && further >= 0) {
            ++i;
            if (all[i].id == token) return true;
            further -= all[i].weight;
          }
        }
      }
    }
  }
  return false;
}

struct Tally {
  int draws = 0, borderline = 0;
};

void compare(Device& device, const std::vector<float>& logits, const SampleOptions& o, int count, Tally& tally,
             const std::string& name) {
  GpuSampler gpu(device, o, static_cast<uint32_t>(logits.size()));
  const std::vector<uint32_t> got = gpu.draw(logits, count);
  Sampler cpu({.temperature = o.temperature,
               .top_k = static_cast<int>(o.top_k),
               .top_p = o.top_p,
               .min_p = o.min_p,
               .seed = o.seed});
  for (int i = 0; i < count; ++i) {
    const uint64_t draw = static_cast<uint64_t>(i);
    const uint32_t want = static_cast<uint32_t>(cpu.sample(logits, {}, draw));
    const uint32_t token = got[static_cast<size_t>(i)];
    ++tally.draws;
    if (token == want) continue;
    ++tally.borderline;
    EXPECT_TRUE(is_borderline(logits, o, draw, token, 2e-6))
        << name
        << fmt::format(": T {} k {} p {} m {} vocab {} draw {}: {} instead of {}", o.temperature, o.top_k, o.top_p,
                       o.min_p, logits.size(), i, token, want);
  }
}

TEST(Sample, AgreesWithTheCpuSampler) {
  DOPPLER_NEED_DEVICE(device);
  Tally tally;
  uint32_t seed = 1;
  for (const size_t vocab : {1u, 2u, 300u, 2048u, 5000u, 33000u}) {
    for (const double spread : {0.5, 3.0, 12.0}) {
      const std::vector<float> logits = random_floats(vocab, spread, ++seed);
      for (const float temperature : {0.3f, 1.0f}) {
        std::vector<SampleOptions> options(6);
        options[1].top_k = 1;
        options[2].top_k = 40;
        options[3].top_p = 0.9f;
        options[4].min_p = 0.05f;
        options[5].top_k = 300;
        options[5].top_p = 0.7f;
        options[5].min_p = 0.01f;
        for (SampleOptions& o : options) {
          o.temperature = temperature;
          o.seed = 0x123456789abcull + seed;
          compare(device, logits, o, vocab > 10000 ? 1 : vocab < 3 ? 2 : 4, tally, "random");
        }
      }
    }
  }
  EXPECT_LE(tally.borderline, tally.draws / 50);
  std::cout << "  " << tally.draws << " draws, " << tally.borderline << " on a rounding border\n";
}

// Bins with more candidates than a workgroup has threads: near-equal and equal logits.
TEST(Sample, CutsCrowdedBinsExactly) {
  DOPPLER_NEED_DEVICE(device);
  Tally tally;
  const size_t vocab = 20000;
  std::vector<float> flat(vocab, 2.5f), near = random_floats(vocab, 1e-3, 5), steps(vocab);
  for (size_t i = 0; i < vocab; ++i) steps[i] = static_cast<float>((i * 7919) % 7);
  int which = 0;
  for (const auto& logits : {flat, near, steps}) {
    std::vector<SampleOptions> options(5);
    options[1].top_k = 5000;
    options[2].top_p = 0.5f;
    options[3].top_k = 12000;
    options[3].top_p = 0.8f;
    options[4].min_p = 0.5f;
    for (SampleOptions& o : options) {
      o.seed = 99;
      compare(device, logits, o, 8, tally, fmt::format("crowded {}", which));
    }
    ++which;
  }
  std::cout << "  " << tally.draws << " draws, " << tally.borderline << " on a rounding border\n";
}

TEST(Sample, WhatIsNoNumberIsNeverDrawnAndIsSeen) {
  DOPPLER_NEED_DEVICE(device);
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  std::vector<float> logits = random_floats(3000, 1, 3);
  for (size_t i = 1; i < logits.size(); i += 3) logits[i] = -inf;
  GpuSampler sampler(device, {.temperature = 2, .seed = 5}, 3000);
  for (const uint32_t token : sampler.draw(logits, 20)) {
    EXPECT_LT(token, 3000u);
    EXPECT_NE(token % 3, 1u);
  }
  for (const float bad : {nan, inf}) {
    std::vector<float> one = logits;
    one[1234] = bad;
    EXPECT_EQ(sampler.draw(one, 1)[0], ~1234u);
  }
  EXPECT_GE(sampler.draw(std::vector<float>(3000, nan), 1)[0], 0x80000000u);
  EXPECT_GE(sampler.draw(std::vector<float>(3000, -inf), 1)[0], 0x80000000u);
  EXPECT_LT(sampler.draw(logits, 1)[0], 3000u) << "nothing of it is left for the next token";
}

TEST(Sample, PenalisesWhatWasSeenAndWhatItDraws) {
  DOPPLER_NEED_DEVICE(device);
  const uint32_t vocab = 500;
  const std::vector<float> logits = random_floats(vocab, 4, 8);
  std::vector<int32_t> text;
  std::vector<uint32_t> seen(vocab / 32 + 1);
  for (uint32_t i = 0; i < vocab; i += 5) {
    text.push_back(static_cast<int32_t>(i));
    seen[i / 32] |= 1u << (i % 32);
  }
  const SampleOptions options = {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .penalty = 1.4f, .seed = 3};
  GpuSampler gpu(device, options, vocab, seen);
  const std::vector<uint32_t> got = gpu.draw(logits, 30);
  Sampler cpu({.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .repeat_penalty = 1.4f, .seed = 3});
  int same = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const int32_t want = cpu.sample(logits, text, i);
    same += static_cast<uint32_t>(want) == got[i];
    text.push_back(static_cast<int32_t>(got[i]));
  }
  EXPECT_GE(same, 29);
}

// The frequencies of many draws are the probabilities.
TEST(Sample, DrawsByProbability) {
  DOPPLER_NEED_DEVICE(device);
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(3.0f), std::log(4.0f)};
  GpuSampler sampler(device, {.temperature = 1, .seed = 17}, 4);
  const int count = 200;
  std::vector<int> times(4);
  for (const uint32_t token : sampler.draw(logits, count)) ++times.at(token);
  for (size_t i = 0; i < 4; ++i) {
    const double p = static_cast<double>(i + 1) / 10;
    EXPECT_NEAR(times[i], count * p, 4.5 * std::sqrt(count * p * (1 - p))) << i;
  }
}

TEST(Sample, RefusesWhatItCannotDo) {
  DOPPLER_NEED_DEVICE(device);
  const Buffer b = device.create_buffer("b", 64);
  const SampleBuffers buffers = {b, b, b, b, {b, b, b}};
  Recording recording(device, "refused");
  EXPECT_EQ(error_of([&] { record_sample(recording, "s", {.temperature = 0}, buffers, 1, 10, 1); }).code,
            ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { record_sample(recording, "s", {}, buffers, 1, (1u << 19) + 1, 1); }).code,
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace doppler::gpu
