// Many answers at once on real backends: each has the bits of the one computed alone, whoever came and went beside it.
#include <gtest/gtest.h>

#include <random>

#include "convert/convert.h"
#include "engine/backend.h"
#include "engine/generator.h"
#include "engine/session.h"
#include "gpu/webgpu/device.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr int kContext = 160, kBlock = 24, kMostTokens = 48;

struct Case {
  std::string checkpoint, backend;
  int rounds;  // of random arrivals; DOPPLER_BATCH_ROUNDS asks for more
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.checkpoint + "_" + info.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ManyAnswers : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().backend != "webgpu") return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  LoadedModel model() {
    ConvertOptions options;
    options.recipe = recipe_named("q4_k_m");
    options.no_tokenizer = true;
    convert(DOPPLER_TEST_DATA "/models/" + GetParam().checkpoint, scratch_ / "model", options);
    return LoadedModel::load(scratch_ / "model");
  }

  testing::Scratch scratch_;
};

// An answer and the model's numbers behind every token of it.
struct Told {
  bool finished = false;
  Generation result;
};

void expect_same(const Generation& got, const Generation& alone) {
  const bool cut = got.stop_reason == StopReason::kInterrupted;
  ASSERT_LE(got.token_ids.size(), alone.token_ids.size());
  if (!cut) {
    ASSERT_EQ(got.token_ids.size(), alone.token_ids.size());
    ASSERT_EQ(got.stop_reason, alone.stop_reason);
  }
  for (size_t i = 0; i < got.token_ids.size(); ++i) {
    ASSERT_EQ(got.token_ids[i], alone.token_ids[i]) << "token " << i;
    ASSERT_EQ(got.logprobs[i].chosen, alone.logprobs[i].chosen) << "token " << i;
    ASSERT_EQ(got.logprobs[i].likeliest, alone.logprobs[i].likeliest) << "token " << i;
  }
}

struct Seen {
  uint64_t put_back = 0;
  int found = 0, forked = 0, cancelled = 0;
};

void play(uint64_t seed, const LoadedModel& model, Executor& executor, Session& alone, Seen& seen) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto chance = [&](int percent) { return pick(1, 100) <= percent; };
  double now = 0;
  Generator generator(executor, model.config, nullptr,
                      {.scheduler = {.context = kContext, .sequences = pick(2, 8), .piece = pick(1, kBlock)},
                       .now_ms = [&now] { return now; }});
  const Scheduler& scheduler = generator.scheduler();
  std::map<SampleId, Told> told;
  std::map<uint64_t, GenerateRequest> requests;
  std::vector<int32_t> common(64);
  for (int32_t& token : common) token = pick(0, model.config.vocab - 1);
  int left = pick(3, 9);
  while (left > 0 || scheduler.running() + scheduler.waiting() + scheduler.put_back() > 0) {
    now += pick(1, 40);
    while (left > 0 && chance(40)) {
      --left;
      GenerateRequest request;
      if (chance(60)) request.prompt.assign(common.begin(), common.begin() + pick(1, 64));
      for (int i = pick(1, 40); i > 0; --i) request.prompt.push_back(pick(0, model.config.vocab - 1));
      request.options = {
          .max_tokens = pick(1, kMostTokens),
          .sampling = {.temperature = chance(50) ? 0.f : 1.f, .seed = static_cast<uint64_t>(pick(0, 99))},
          .logprobs = 3};
      request.samples = chance(30) ? 2 : 1;
      seen.forked += request.samples > 1;
      const auto submitted = generator.submit(request, [&told](const GenerateEvent& event) {
        if (event.finished) told[event.id] = {true, *event.finished};
        return true;
      });
      requests[submitted.id] = std::move(request);
    }
    if (!requests.empty() && chance(4)) {
      generator.cancel(std::next(requests.begin(), pick(0, static_cast<int>(requests.size()) - 1))->first);
      ++seen.cancelled;
    }
    generator.step();
  }
  seen.put_back += scheduler.times_put_back();
  EXPECT_EQ(executor.cache().held_pages(), 0u);
  for (const auto& [id, request] : requests) {
    for (int k = 0; k < request.samples; ++k) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", request " << id << ", sample " << k);
      const Told& to = told[{id, k}];
      ASSERT_TRUE(to.finished);
      seen.found += to.result.timing.found > 0;
      GenerateOptions options = request.options;
      options.sampling.seed += static_cast<uint64_t>(k);
      alone.invalidate();
      alone.executor().cache().drop_prefixes();
      expect_same(to.result, alone.generate(request.prompt, options));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(ManyAnswers, AreTheOnesComputedAlone) {
  const LoadedModel model = this->model();
  const ExecutorOptions options{.context = kContext, .threads = 1, .block = kBlock, .checked = true};
  Session alone(make_executor(model, GetParam().backend, options), nullptr, kContext);
  // All of them share the room of one of the longest, so that some must be put back.
  const auto executor = make_executor(model, GetParam().backend, options);
  const char* asked = std::getenv("DOPPLER_BATCH_ROUNDS");
  const int rounds = asked ? std::atoi(asked) : GetParam().rounds;
  Seen seen;
  for (int round = 0; round < rounds; ++round) {
    play(static_cast<uint64_t>(round), model, *executor, alone, seen);
    if (HasFatalFailure()) return;
  }
  RecordProperty("put_back", std::to_string(seen.put_back));
  if (rounds < 100) return;
  // Or the cases were too easy.
  EXPECT_GT(seen.put_back, 10u);
  EXPECT_GT(seen.found, 10);
  EXPECT_GT(seen.forked, 10);
  EXPECT_GT(seen.cancelled, 10);
}

std::vector<Case> cases(const std::string& backend, int rounds) {
  std::vector<Case> all;
  for (const char* name : {"gemma3-a", "gemma3-b", "gemma2-a", "llama-a", "qwen3-a", "gptoss-a"})
    all.push_back({name, backend, rounds});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cpu, ManyAnswers, ::testing::ValuesIn(cases("cpu", 100)), case_name);
INSTANTIATE_TEST_SUITE_P(WebGpu, ManyAnswers,
                         ::testing::Values(Case{"gemma3-a", "webgpu", 1}, Case{"gptoss-a", "webgpu", 1}), case_name);
INSTANTIATE_TEST_SUITE_P(Ref, ManyAnswers, ::testing::ValuesIn(cases("ref", 2)), case_name);

}  // namespace
}  // namespace doppler
