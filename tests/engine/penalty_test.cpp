// A repetition penalty on the GPU: what decode() chooses, several tokens a submit, is what the host's sampler chooses
// of the same logits and the whole text.
#include <gtest/gtest.h>

#include "convert/convert.h"
#include "engine/backend.h"
#include "engine/sampler.h"
#include "gpu/webgpu/device.h"
#include "support/reference.h"
#include "support/runner.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr int kBatch = 4;

struct Choices {
  std::vector<int32_t> text;
  std::vector<std::vector<float>> logits;  // that the choices were made of, where they are tapped
};

// Two batches after the prompt and `first`, the second of them begun before the first was read.
Choices choose(testing::Runner& executor, std::span<const int32_t> prompt, int32_t first, const Sampling& sampling,
               bool tapped) {
  Choices r{.text = {prompt.begin(), prompt.end()}, .logits = {}};
  executor.reset();
  executor.forward(prompt, Logits::kNone);
  if (tapped) {
    const auto keep = [&](const Step&, std::span<const float> data, int, int) {
      r.logits.emplace_back(data.begin(), data.end());
    };
    executor.set_tap_at(keep, {"logits"});
  }
  r.text.push_back(first);
  for (int round = 0; round < 2; ++round) {
    const auto draw = static_cast<uint64_t>(round) * kBatch;
    const std::vector<int32_t> chosen = executor.decode(r.text.back(), kBatch, sampling, draw, true);
    EXPECT_EQ(chosen.size(), size_t{kBatch}) << "the GPU left the choice to the host";
    r.text.insert(r.text.end(), chosen.begin(), chosen.end());
  }
  executor.set_tap(nullptr);
  return r;
}

TEST(Penalty, OnAGpuIsTheHosts) {
  if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  const testing::Scratch scratch;
  ConvertOptions options;
  options.recipe = recipe_named("bf16");
  options.no_tokenizer = true;
  const std::filesystem::path source = DOPPLER_TEST_DATA "/models/llama-a";
  convert(source, scratch / "model", options);
  const LoadedModel model = LoadedModel::load(scratch / "model");
  const auto executor = testing::one_sequence(make_executor(model, "webgpu", {.context = 64}));
  const std::vector<int32_t> all = testing::Reference(source).ids("prompt_ids");
  const std::span<const int32_t> prompt = std::span(all).first(9);

  // The greedy text of this model repeats a token at once; so do draws at a low temperature.
  const Sampling greedy{.repeat_penalty = 1.8f};
  const Sampling drawn{.temperature = 0.2f, .top_k = 40, .top_p = 0.95f, .repeat_penalty = 1.7f, .seed = 11};
  for (const Sampling& sampling : {greedy, drawn}) {
    SCOPED_TRACE(sampling.temperature);
    const int32_t first = 7;
    const Choices seen = choose(*executor, prompt, first, sampling, true);
    ASSERT_EQ(seen.logits.size(), size_t{2 * kBatch});
    Sampling without = sampling;
    without.repeat_penalty = 1;
    Sampler host(sampling), careless(without);
    int changed = 0;
    for (size_t i = 0; i < seen.logits.size(); ++i) {
      const size_t length = prompt.size() + 1 + i;
      const std::span<const int32_t> before = std::span(seen.text).first(length);
      EXPECT_EQ(seen.text[length], host.sample(seen.logits[i], before, i)) << "token " << i;
      changed += seen.text[length] != careless.sample(seen.logits[i], before, i);
    }
    EXPECT_GT(changed, 0) << "nothing to penalise in this text";

    const Choices plain = choose(*executor, prompt, first, sampling, false);
    EXPECT_EQ(plain.text, seen.text);
    // Two tokens are taken back although the next is begun: they are no longer part of the text.
    executor->rewind(executor->position() - 2);
    const std::vector<int32_t> again = executor->decode(plain.text[plain.text.size() - 3], 2, sampling, 2 * kBatch - 2);
    EXPECT_EQ(again, std::vector(plain.text.end() - 2, plain.text.end()));
    EXPECT_NE(choose(*executor, prompt, first, without, false).text, plain.text) << "the old penalty was kept";
  }
}

}  // namespace
}  // namespace doppler
