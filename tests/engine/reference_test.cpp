// Every backend against what an independent implementation computes on the same weights.
#include <gtest/gtest.h>

#include <cmath>
#include <list>
#include <map>
#include <random>

#include "base/half.h"
#include "convert/convert.h"
#include "engine/backend.h"
#include "gpu/webgpu/device.h"
#include "ref/ref_executor.h"
#include "support/reference.h"
#include "support/runner.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

struct Case {
  std::string checkpoint, backend;
  double bound;         // relative error of any stage at f32
  double block = 1e-5;  // relative difference of the logits between block sizes
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.checkpoint + "_" + info.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Checkpoint : public ::testing::TestWithParam<Case> {
 protected:
  // In the project, or among the reference data that is too large for it.
  std::filesystem::path source() const {
    const std::filesystem::path own = DOPPLER_TEST_DATA "/models/" + GetParam().checkpoint;
    return std::filesystem::exists(own) ? own : testing::reference_folder("models/" + GetParam().checkpoint);
  }

  LoadedModel converted(const char* quant) {
    ConvertOptions options;
    options.recipe = recipe_named(quant);
    options.no_tokenizer = true;
    if (std::filesystem::exists(source() / "adapter")) options.adapters = {(source() / "adapter").string()};
    convert(source(), scratch_ / quant, options);
    return LoadedModel::load(scratch_ / quant);
  }

  // Where scores are not scaled down (by 1/√head_dim, as a rule), what 16 bits round away from keys and values is
  // magnified: the stages' errors in plain code whose cache rounds as the backend's does. Empty for other models.
  std::map<std::string, double> cost_of_rounded_cache(const LoadedModel& model, const testing::Reference& reference) {
    const double scale = static_cast<double>(model.config.attn_scale);
    if (GetParam().backend == "ref" || scale * std::sqrt(model.config.head_dim) < 2) return {};
    const bool f16_keys = GetParam().backend == "webgpu";
    const auto to_steps = [](std::span<float> head) {  // 32767 of them to the largest
      float most = 0;
      for (const float v : head) most = std::max(most, std::abs(v));
      for (float& v : head) v = most > 0 ? std::round(v / most * 32767) * most / 32767 : 0;
    };
    const CacheRounding rounding = [&](const Attention& op, std::span<float> key, std::span<float> value) {
      const auto dim = static_cast<size_t>(op.head_dim);
      for (size_t at = 0; at < key.size(); at += dim) {
        if (!f16_keys) to_steps(key.subspan(at, dim));
        to_steps(value.subspan(at, dim));
      }
      for (float& v : key) v = f16_keys ? f16_to_f32(f32_to_f16(v)) : v;
    };
    const auto runner = testing::one_sequence(
        make_rounding_ref_executor(model.config, model.plan, model.weights, {.context = 256}, rounding));
    return testing::stage_errors(*runner, model.plan, reference);
  }

  void SetUp() override {
    if (source().empty()) GTEST_SKIP() << GetParam().checkpoint << " is not here (DOPPLER_REFERENCE)";
    if (GetParam().backend != "webgpu") return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  std::unique_ptr<testing::Runner> executor(const LoadedModel& model, int block = 0) {
    return testing::one_sequence(
        make_executor(model, GetParam().backend, {.context = 256, .threads = 2, .block = block, .checked = true}));
  }

  testing::Scratch scratch_;
};

TEST_P(Checkpoint, EveryStageAgrees) {
  const LoadedModel model = converted("f32");
  const testing::Reference reference(source());
  const auto errors = testing::stage_errors(*executor(model), model.plan, reference);
  EXPECT_EQ(errors.size(), reference.by_step.size()) << "a stage of the reference has no step of that name";
  const auto rounded = cost_of_rounded_cache(model, reference);
  for (const auto& [stage, error] : errors) {
    const double unavoidable = rounded.empty() ? 0 : rounded.at(stage);
    EXPECT_LE(error, std::max(GetParam().bound, 1.5 * unavoidable)) << stage;
  }
}

TEST_P(Checkpoint, GreedyTokensAgreeWhereTheMarginIsClear) {
  const LoadedModel model = converted("f32");
  const testing::Reference reference(source());
  const auto expected = reference.ids("greedy_ids");
  const auto margins = reference.margins();
  const auto runner = executor(model);
  std::vector<int32_t> input = reference.ids("prompt_ids");
  for (size_t i = 0; i < expected.size(); ++i) {
    const int32_t token = argmax(runner->forward(input, Logits::kLast));
    if (margins[i] > 0.01) {
      EXPECT_EQ(token, expected[i]) << "token " << i << ", margin " << margins[i];
    }
    input = {expected[i]};  // the reference's choice, so that one close call does not change the rest
  }
}

TEST_P(Checkpoint, BlocksOfAnySizeGiveTheSameLogits) {
  const LoadedModel model = converted("f32");
  const std::vector<int32_t> prompt = testing::Reference(source()).ids("prompt_ids");
  const auto whole = executor(model);
  const std::span<const float> all = whole->forward(prompt, Logits::kAll);
  for (const int block : {1, 3, 7}) {
    const auto runner = executor(model, block);
    EXPECT_LE(testing::relative_error(runner->forward(prompt, Logits::kAll), all), GetParam().block)
        << "blocks of " << block;
    runner->reset();
    const std::span<const float> last = runner->forward(prompt, Logits::kLast);
    EXPECT_LE(testing::relative_error(last, all.last(last.size())), GetParam().block) << "blocks of " << block;
  }
}

// What rounding to Q8_0 costs a model if its errors are as good as random: the logits' relative error where every
// weight that `quantised` keeps in Q8_0 is off by a random part of half a step, a 127th of the largest of its block
// of 32.
double cost_of_random_rounding(LoadedModel exact, const Weights& quantised, const testing::Reference& reference) {
  std::list<std::vector<float>> rounded;
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> part(-0.5f, 0.5f);
  for (const auto& [slot, other] : quantised.all()) {
    if (other.dtype != DType::kQ8_0) continue;
    Tensor tensor = exact.weights.at(slot);
    const auto* data = reinterpret_cast<const float*>(tensor.bytes.data());
    std::vector<float>& values = rounded.emplace_back(data, data + tensor.bytes.size() / sizeof(float));
    for (size_t block = 0; block + 32 <= values.size(); block += 32) {
      float largest = 0;
      for (size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::abs(values[i]));
      for (size_t i = block; i < block + 32; ++i) values[i] += part(random) * largest / 127;
    }
    tensor.bytes = std::as_bytes(std::span(values));
    exact.weights.add(slot, tensor);
  }
  const auto runner = testing::one_sequence(make_executor(exact, "ref", {.context = 256}));
  return testing::relative_error(runner->forward(reference.ids("prompt_ids"), Logits::kAll), reference.stage("logits"));
}

TEST_P(Checkpoint, QuantisedLogitsStayNear) {
  const testing::Reference reference(source());
  for (const char* quant : {"bf16", "q8_0"}) {
    const LoadedModel model = converted(quant);
    const bool rounds = quant != std::string("bf16");
    // A rounded attention may send a token to another expert, which is no small error and no fault either.
    if (model.config.experts > 0 && rounds) continue;
    // How much a model enlarges what its weights lose is its own: 1.3 to 4.5 % of the logits among these. Two draws of
    // thousands of rounding errors differ by far less than half; one lost bit of eight doubles them.
    const double bound = rounds ? 1.5 * cost_of_random_rounding(converted("f32"), model.weights, reference) : 1e-2;
    const auto runner = executor(model);
    const std::span<const float> logits = runner->forward(reference.ids("prompt_ids"), Logits::kAll);
    const double error = testing::relative_error(logits, reference.stage("logits"));
    EXPECT_LE(error, bound) << quant;
    RecordProperty(std::string("logits_error_") + quant, std::to_string(error));
    RecordProperty(std::string("logits_bound_") + quant, std::to_string(bound));
  }
}

// The first layers of checkpoints that are too large for the project: all that is computed in them.
class FirstLayers : public Checkpoint {};

TEST_P(FirstLayers, EveryStageAgrees) {
  const LoadedModel model = converted("f32");
  const testing::Reference reference(source());
  const auto errors = testing::stage_errors(*executor(model), model.plan, reference);
  EXPECT_EQ(errors.size(), reference.by_step.size()) << "a stage of the reference has no step of that name";
  for (const auto& [stage, error] : errors) EXPECT_LE(error, GetParam().bound) << stage;
}

// What decode() chooses, several tokens a submit, is what forward() and the host's choice give one at a time.
TEST_P(Checkpoint, ABackendsOwnChoicesAreTheHosts) {
  const LoadedModel model = converted("f32");
  const testing::Reference reference(source());
  const auto alone = executor(model), batched = executor(model);
  const std::vector<int32_t> prompt = reference.ids("prompt_ids");
  int32_t one = argmax(alone->forward(prompt, Logits::kLast)), many = argmax(batched->forward(prompt, Logits::kLast));
  ASSERT_EQ(one, many);
  uint64_t draw = 0;
  std::vector<int32_t> chosen = batched->decode(many, 5, {}, draw, true);
  if (chosen.empty()) GTEST_SKIP() << "this backend leaves the choice to the host";
  for (int round = 0; round < 3; ++round) {
    for (const int32_t token : chosen) {
      one = argmax(alone->forward(std::span(&one, 1), Logits::kLast));
      EXPECT_EQ(token, one) << "round " << round;
    }
    EXPECT_EQ(batched->position(), alone->position());
    many = chosen.back();
    draw += 5;
    chosen = batched->decode(many, 5, {}, draw, true);
  }
  // Some are taken back although the next one was begun already.
  batched->rewind(batched->position() - 3);
  EXPECT_EQ(batched->decode(chosen[1], 3, {}, draw + 2), std::vector(chosen.begin() + 2, chosen.end()));
}

TEST(ManyTokens, ManyASubmitAreTheSameAsOne) {
  if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  const testing::Scratch scratch;
  ConvertOptions options;
  options.recipe = recipe_named("q4_k_m");
  options.no_tokenizer = true;
  const std::filesystem::path source = DOPPLER_TEST_DATA "/models/gemma3-a";
  convert(source, scratch / "model", options);
  const LoadedModel model = LoadedModel::load(scratch / "model");
  const std::vector<int32_t> prompt = testing::Reference(source).ids("prompt_ids");
  // Software takes a second for three tokens.
  const bool slow = !std::getenv("DOPPLER_TEST_MODELS") && gpu::list_adapters()[0].type == "software";
  const size_t count = slow ? 24 : 300;
  std::vector<int32_t> first;
  for (const auto& [batch, more] : {std::pair(1, false), std::pair(8, false), std::pair(8, true)}) {
    const auto runner = testing::one_sequence(make_executor(model, "webgpu", {.context = 400, .checked = true}));
    std::vector<int32_t> ids = {argmax(runner->forward(prompt, Logits::kLast))};
    while (ids.size() < count) {
      const std::vector<int32_t> chosen = runner->decode(ids.back(), batch, {}, ids.size(), more);
      ASSERT_FALSE(chosen.empty());
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    ids.resize(count);
    if (first.empty()) first = ids;
    EXPECT_EQ(ids, first) << batch << " tokens a submit";
  }
}

constexpr double kRefBound = 1e-4, kFastBound = 1e-3;
// A GPU takes other kernels for one token than for many: their sums, added up in another order, fall to one side or the
// other when keys and values are rounded for the cache.
constexpr double kGpuBlock = 2e-4;
std::vector<Case> on_every_backend(const std::vector<const char*>& checkpoints) {
  std::vector<Case> cases;
  for (const char* checkpoint : checkpoints) {
    cases.push_back({checkpoint, "ref", kRefBound});
    cases.push_back({checkpoint, "cpu", kFastBound});
    cases.push_back({checkpoint, "webgpu", kFastBound, kGpuBlock});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Models, Checkpoint,
                         ::testing::ValuesIn(on_every_backend(
                             {"gemma3-a",     "gemma3-b",   "gemma2-a",      "llama-a",      "qwen3-a", "gptoss-a",
                              "qwen2-a",      "smollm3-a",  "phi3-a",        "olmo2-a",      "olmo3-a", "granite-a",
                              "ministral3-a", "qwen3moe-a", "lora-gemma3-a", "lora-qwen3-a", "lfm2-a",  "qwen35-a",
                              "qwen35moe-a",  "gemma4-a",   "gemma4moe-a"})),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Models, FirstLayers,
                         ::testing::ValuesIn(on_every_backend({"phi3-cut", "olmo2-cut", "granite-cut", "ministral3-cut",
                                                               "qwen3moe-cut", "qwen35moe-cut"})),
                         case_name);

}  // namespace
}  // namespace doppler
