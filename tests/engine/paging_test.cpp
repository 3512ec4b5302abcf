// Experts that do not fit into the GPU memory a model may take: the numbers are the same, and the bound holds.
#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "bench/inference.h"
#include "convert/convert.h"
#include "engine/backend.h"
#include "gpu/webgpu/device.h"
#include "support/json_schema.h"
#include "support/reference.h"
#include "support/runner.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr int kLayers = 4, kChosen = 4, kExperts = 8, kProducts = 2;  // of the checkpoint
constexpr uint64_t kWanted = kLayers * kChosen * kProducts;           // matrices of a single token

ExecutorOptions room(uint64_t gpu_memory) {
  return {.context = 64, .block = 16, .checked = true, .gpu_memory = gpu_memory};
}

// What making an executor is refused with.
Error refusal(const LoadedModel& model, const ExecutorOptions& options) {
  try {
    make_executor(model, "webgpu", options);
  } catch (const Failure& failure) {
    return failure.error;
  }
  return {};
}

uint64_t bytes_asked_for(const Error& error) {
  std::smatch found;
  if (!std::regex_search(error.expected, found, std::regex("at least ([0-9]+) bytes"))) return 0;
  return std::stoull(found[1]);
}

uint64_t least_memory(const LoadedModel& model, ExecutorOptions options = room(1)) {
  options.gpu_memory = 1;
  return bytes_asked_for(refusal(model, options));
}

uint64_t expert_bytes(const LoadedModel& model) {  // of all, as they are stored
  uint64_t bytes = 0;
  for (const Step& step : model.plan.steps) {
    if (std::holds_alternative<ExpertMatMul>(step.op)) bytes += model.weights.at(step.weights[0].slot).byte_size();
  }
  return bytes;
}

std::string recipe_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

class Paging : public ::testing::TestWithParam<const char*> {
 protected:
  static std::filesystem::path source() { return DOPPLER_TEST_DATA "/models/gptoss-a"; }

  void SetUp() override {
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
    ConvertOptions options;
    options.recipe = recipe_named(GetParam());
    options.no_tokenizer = true;
    convert(source(), scratch_ / "model", options);
    model_.emplace(LoadedModel::load(scratch_ / "model"));
  }

  testing::Scratch scratch_;
  std::optional<LoadedModel> model_;
};

// A prompt of two blocks, all its logits; then tokens one by one. After each: are the device's buffers within bounds?
std::vector<float> logits_of(testing::Runner& executor, std::span<const int32_t> prompt, uint64_t bound) {
  std::vector<float> all;
  const auto keep = [&](std::span<const float> more) {
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_LE(gpu::live_buffer_bytes(), bound);
  };
  keep(executor.forward(prompt, Logits::kAll));
  for (const int32_t token : {7, 200, 31}) keep(executor.forward(std::span(&token, 1), Logits::kLast));
  return all;
}

TEST_P(Paging, EveryLogitIsTheSameAndTheBoundHolds) {
  std::vector<int32_t> prompt = testing::Reference(source()).ids("prompt_ids");
  while (prompt.size() < 27) prompt.push_back(static_cast<int32_t>(prompt.size() * 37 % 256));
  prompt.resize(27);
  ASSERT_EQ(gpu::live_buffer_bytes(), 0u);
  std::vector<float> expected;
  uint64_t whole_bytes = 0;
  {
    const auto whole = testing::one_sequence(make_executor(*model_, "webgpu", room(0)));
    expected = logits_of(*whole, prompt, UINT64_MAX);
    whole_bytes = whole->counters().bytes;
    EXPECT_EQ(whole->counters().expert_hits + whole->counters().expert_misses, 0u);
  }
  const uint64_t least = least_memory(*model_), all = expert_bytes(*model_);
  ASSERT_GT(least, all / 2);
  ASSERT_LT(least, whole_bytes);
  // Room for four of eight experts in every layer; or for six in some and five in others.
  const uint64_t more = least + 6 * all / (kLayers * kExperts) + 4096;
  const bool quick = GetParam() == std::string("f32");  // to compile, on a software GPU
  for (const uint64_t memory : quick ? std::vector{least, more} : std::vector{more}) {
    const auto paged = testing::one_sequence(make_executor(*model_, "webgpu", room(memory)));
    const std::vector<float> got = logits_of(*paged, prompt, memory);
    EXPECT_EQ(got, expected) << memory << " bytes";
    EXPECT_GT(paged->counters().expert_hits, 0u);
    EXPECT_GT(paged->counters().expert_misses, kWanted);
    EXPECT_TRUE(paged->decode(5, 4, {}, 0).empty()) << "the GPU cannot choose by itself";
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Paging, ::testing::Values("f32", "q4_k_m"), recipe_name);

class Paged : public Paging {};

TEST_P(Paged, HitsAndMissesAreCounted) {
  const auto paged = testing::one_sequence(make_executor(*model_, "webgpu", room(least_memory(*model_))));
  const int32_t token = 5;
  paged->forward(std::span(&token, 1), Logits::kNone);
  EXPECT_EQ(paged->counters().expert_misses, kWanted);
  EXPECT_EQ(paged->counters().expert_hits, 0u);
  paged->reset();
  paged->forward(std::span(&token, 1), Logits::kNone);
  EXPECT_EQ(paged->counters().expert_misses, kWanted) << "the same token chooses the same experts, which are there";
  EXPECT_EQ(paged->counters().expert_hits, kWanted);
}

TEST_P(Paged, TapsSeeWhatTheySeeWithoutAndCountInTheBound) {
  using Seen = std::map<std::string, std::vector<float>>;
  const auto seen = [&](uint64_t memory, uint64_t* most = nullptr) {
    Seen stages;
    const auto executor = testing::one_sequence(make_executor(*model_, "webgpu", room(memory)));
    executor->set_tap([&](const Step& step, std::span<const float> data, int, int) {
      stages[step.name].assign(data.begin(), data.end());
    });
    const std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
    executor->forward(tokens, Logits::kLast);
    if (most) *most = gpu::live_buffer_bytes();
    const Step& product = *std::find_if(model_->plan.steps.begin(), model_->plan.steps.end(),
                                        [](const Step& step) { return std::holds_alternative<ExpertMatMul>(step.op); });
    EXPECT_NE(executor->kernel_of(product).find("expert_matmul"), std::string::npos);
    return stages;
  };
  const Seen expected = seen(0);
  EXPECT_EQ(expected.size(), model_->plan.steps.size());
  // Too little for the taps is said when they are asked for; the number it says is enough.
  uint64_t needed = 0, most = 0;
  try {
    seen(least_memory(*model_));
  } catch (const Failure& failure) {
    EXPECT_NE(failure.error.expected.find("for what is looked at"), std::string::npos) << failure.error.message();
    needed = bytes_asked_for(failure.error);
  }
  ASSERT_GT(needed, least_memory(*model_));
  EXPECT_EQ(seen(needed, &most), expected);
  EXPECT_LE(most, needed);
}

TEST_P(Paged, ABoundThatAllFitsIntoChangesNothing) {
  const uint64_t unbound = make_executor(*model_, "webgpu", room(0))->counters().bytes;
  const auto whole = testing::one_sequence(make_executor(*model_, "webgpu", room(1u << 30)));
  EXPECT_EQ(whole->counters().bytes, unbound);
  const int32_t token = 5;
  whole->forward(std::span(&token, 1), Logits::kNone);
  EXPECT_EQ(whole->counters().expert_hits + whole->counters().expert_misses, 0u);
}

TEST_P(Paged, TooSmallABoundIsASentenceThatSaysWhatIsNeeded) {
  set_trace("buffers");
  ::testing::internal::CaptureStderr();
  const uint64_t least = least_memory(*model_);
  const std::string made = ::testing::internal::GetCapturedStderr();
  set_trace("-buffers");
  EXPECT_EQ(made.find("layer"), std::string::npos) << "something was uploaded before:\n" << made;
  ASSERT_GT(least, 0u);
  const Error error = refusal(*model_, room(least - 1));
  EXPECT_EQ(error.code, ErrorCode::kMemory);
  EXPECT_NE(error.message().find("does not fit into the GPU memory it may take (--gpu-memory): expected at least " +
                                 std::to_string(least) + " bytes"),
            std::string::npos)
      << error.message();
  EXPECT_EQ(refusal(*model_, room(least)).what, "");
  const LoadedModel dense = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");  // nothing there can be paged
  EXPECT_EQ(refusal(dense, room(1 << 20)).code, ErrorCode::kMemory);
}

TEST_P(Paged, TheBenchShowsTheHitRate) {
  InferenceWorkload workload;
  workload.backend = "webgpu";
  workload.prompt_tokens = 3;
  workload.tokens = 5;
  workload.runs = 1;
  workload.context = 64;
  workload.gpu_memory = least_memory(*model_, {.context = 64});
  const InferenceResult result = bench_inference(scratch_ / "model", workload, [](std::string_view) {});
  EXPECT_EQ(result.expert_hits + result.expert_misses, 5 * kWanted);
  EXPECT_LE(result.peak_device_bytes, workload.gpu_memory);
  const std::string path = DOPPLER_SOURCE_DIR "/bench/result.schema.json";
  const Json json = result.to_json();
  for (const std::string& fault : testing::JsonSchema(parse_json(read_text_file(path), path)).faults(json)) {
    ADD_FAILURE() << fault;
  }
  EXPECT_EQ(json["experts"]["hit_rate"].get<double>(), result.expert_hit_rate());
  EXPECT_NE(result.to_table().find("experts paged"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Once, Paged, ::testing::Values("f32"), recipe_name);

}  // namespace
}  // namespace doppler
