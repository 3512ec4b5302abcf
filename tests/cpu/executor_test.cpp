// The whole executor against the reference executor, and against itself: whatever the instruction set, the threads, the
// blocks and the fusions, the numbers are the same.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "cpu/bandwidth.h"
#include "cpu/cpu_executor.h"
#include "cpu/isa.h"
#include "model/cost.h"
#include "random_model.h"
#include "ref/ref_executor.h"
#include "support/allocations.h"
#include "support/runner.h"

namespace doppler {
namespace {

double error_of(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / size);
}

std::vector<float> copied(std::span<const float> s) { return {s.begin(), s.end()}; }

std::unique_ptr<testing::Runner> cpu_executor(const RandomModel& m, ExecutorOptions options, CpuTuning tuning = {}) {
  if (options.context == 0) options.context = 256;
  if (options.threads == 0) options.threads = 2;
  return testing::one_sequence(make_cpu_executor(m.config, m.plan, m.weights, options, tuning));
}

std::vector<float> reference(const RandomModel& m, std::span<const int32_t> tokens, Logits want) {
  const auto executor = testing::one_sequence(make_ref_executor(m.config, m.plan, m.weights, {.context = 256}));
  return copied(executor->forward(tokens, want));
}

struct Model {
  const char* name;
  ModelConfig (*config)();
};
const Model kModels[] = {{"plain", testing::plain_config},           {"quirky", testing::quirky_config},
                         {"experts", testing::expert_config},        {"multiplied", testing::multiplied_config},
                         {"sparse", testing::sparse_config},         {"odd", testing::odd_config},
                         {"odd_experts", testing::odd_expert_config}};

// How far logits may be off, relative and as a root mean square, for what a type rounds.
// Keys and values are stored in 16 bits: each is off by 2^-11 of itself at most, and attention is an average of them.
constexpr double kCacheRounding = 0x1p-11;
// Q4_K and Q6_K see activations of 8 bits: the error is uniform within a step, which is a 127th of the largest value of
// a block; of up to 256 normal values that is 2.8 times their root mean square.
constexpr double kByteRounding = 2.8 / 127 / 3.4641;

bool reads_bytes(DType type) { return type == DType::kQ4_K || type == DType::kQ6_K; }

// A layer rounds the inputs of q/k/v, of the output projection, of gate and up, and of down; then the output matrix.
// The errors are independent and no branch is larger than the residual stream it is added to. Twice that, since one
// model is one draw.
double bound_of(DType type, const ModelConfig& config) {
  if (!reads_bytes(type)) return kCacheRounding;
  return 2 * kByteRounding * std::sqrt(4.0 * static_cast<double>(config.layers.size()) + 1);
}

// Do few tokens see other numbers than many?
bool gemm_rounds_otherwise(const cpu::Kernels& kernels) {
  return !cpu::batch_invariant(kernels.formats[cpu::kFormatQ4_K].input);
}

class ExecutorTest : public ::testing::TestWithParam<Model> {};

TEST_P(ExecutorTest, EveryFormatOnEveryInstructionSetComesNearTheReference) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ6_K, DType::kQ4_K}) {
    // Where a router stands between two experts, 8-bit activations may choose the other one, and the logits are then
    // another function altogether; steps_test.cpp looks at quantised experts step by step.
    if (GetParam().config().experts > 0 && reads_bytes(type)) continue;
    const RandomModel m(GetParam().config(), type);
    const auto tokens = m.tokens(45);
    const auto expected = reference(m, tokens, Logits::kAll);
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      for (const int block : {0, 1, 4, 16}) {
        const auto executor = cpu_executor(m, {.block = block}, {.kernels = kernels});
        const double error = error_of(executor->forward(tokens, Logits::kAll), expected);
        EXPECT_LE(error, bound_of(type, m.config)) << name_of(type) << " " << kernels->name << " blocks of " << block;
      }
    }
  }
}

TEST_P(ExecutorTest, InstructionSetsAgree) {
  for (const DType type : {DType::kF32, DType::kQ4_K}) {
    const RandomModel m(GetParam().config(), type);
    const auto tokens = m.tokens(40);
    std::vector<float> first;
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      const auto executor = cpu_executor(m, {}, {.kernels = kernels});
      const auto logits = copied(executor->forward(tokens, Logits::kAll));
      if (first.empty()) first = logits;
      // In f32 only the order of sums differs, which may tip a key to the next of its 16 bits. In 8 bits it may tip an
      // activation to the next step, and from product to product ever more of them, until both have rounded
      // independently (other steps do so at once, and then a router may choose another expert).
      const bool bytes = reads_bytes(type);
      if (bytes && gemm_rounds_otherwise(*kernels) && m.config.experts > 0) continue;
      EXPECT_LE(error_of(logits, first), bytes ? std::sqrt(2.0) * bound_of(type, m.config) : kCacheRounding / 4)
          << kernels->name << " " << name_of(type);
    }
  }
}

TEST_P(ExecutorTest, TheNumberOfThreadsChangesNothing) {
  for (const DType type : {DType::kF32, DType::kQ4_K}) {
    const RandomModel m(GetParam().config(), type);
    const auto tokens = m.tokens(37), more = m.tokens(3, 9);
    std::vector<float> prompt, next;
    for (const int threads : {1, 2, 3}) {
      const auto executor = cpu_executor(m, {.threads = threads});
      const auto a = copied(executor->forward(tokens, Logits::kAll));
      std::vector<float> b;
      for (const int32_t token : more) b = copied(executor->forward({&token, 1}, Logits::kLast));
      if (prompt.empty()) {
        prompt = a;
        next = b;
      }
      EXPECT_EQ(a, prompt) << threads << " threads, " << name_of(type);
      EXPECT_EQ(b, next) << threads << " threads, " << name_of(type);
    }
  }
}

TEST_P(ExecutorTest, FusedStepsGiveBitForBitWhatSingleStepsGive) {
  for (const DType type : {DType::kF32, DType::kQ6_K, DType::kQ4_K}) {
    const RandomModel m(GetParam().config(), type);
    const auto tokens = m.tokens(33);
    const auto fused = cpu_executor(m, {}), single = cpu_executor(m, {}, {.fuse = false});
    const auto tapped = cpu_executor(m, {});
    tapped->set_tap([](const Step&, std::span<const float>, int, int) {});
    const auto expected = copied(single->forward(tokens, Logits::kAll));
    EXPECT_EQ(copied(fused->forward(tokens, Logits::kAll)), expected) << name_of(type);
    EXPECT_EQ(copied(tapped->forward(tokens, Logits::kAll)), expected) << name_of(type);
    const int32_t next = 3;
    const auto decoded = copied(single->forward({&next, 1}, Logits::kLast));
    EXPECT_EQ(copied(fused->forward({&next, 1}, Logits::kLast)), decoded) << name_of(type);
    EXPECT_EQ(copied(tapped->forward({&next, 1}, Logits::kLast)), decoded) << name_of(type);
  }
}

TEST_P(ExecutorTest, ATapSeesEveryStepWithItsRowsAndPosition) {
  const RandomModel m(GetParam().config(), DType::kF32);
  const auto tokens = m.tokens(20);
  std::map<std::string, std::vector<float>> expected, got;
  std::map<std::string, int> next;
  const auto ref = testing::one_sequence(make_ref_executor(m.config, m.plan, m.weights, {.context = 256}));
  ref->set_tap([&](const Step& step, std::span<const float> data, int, int) { expected[step.name] = copied(data); });
  ref->forward(tokens, Logits::kAll);
  const auto executor = cpu_executor(m, {.block = 8});
  executor->set_tap([&](const Step& step, std::span<const float> data, int rows, int position) {
    EXPECT_EQ(position, next[step.name]) << step.name;
    next[step.name] += rows;
    EXPECT_EQ(data.size() % static_cast<size_t>(rows), 0u);
    got[step.name].insert(got[step.name].end(), data.begin(), data.end());
  });
  executor->forward(tokens, Logits::kAll);
  ASSERT_EQ(got.size(), m.plan.steps.size());
  for (const auto& [name, data] : expected) {
    ASSERT_EQ(got[name].size(), data.size()) << name;
    EXPECT_LE(error_of(got[name], data), 3e-4) << name;
  }
  executor->set_tap(nullptr);
  executor->reset();
  EXPECT_LE(error_of(executor->forward(tokens, Logits::kAll), expected[m.plan.steps.back().name]), 3e-4);
}

// Not nearly: the same bits. A prompt's answer does not depend on how it was cut, and checking a guessed continuation
// at once gives what decoding it would have given.
TEST_P(ExecutorTest, TokensOneByOneOrInAnyBlocksGiveTheSameBits) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ6_K, DType::kQ4_K}) {
    const RandomModel m(GetParam().config(), type);
    const auto tokens = m.tokens(70);
    const size_t vocab = static_cast<size_t>(m.config.vocab);
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      const auto whole = cpu_executor(m, {}, {.kernels = kernels, .min_gemm_tokens_packed = cpu::kMinGemmTokens});
      const auto all = copied(whole->forward(tokens, Logits::kAll));
      // Tokens in calls so short that they are decoded are another input there.
      const bool only_many = gemm_rounds_otherwise(*kernels) && (type == DType::kQ6_K || type == DType::kQ4_K);
      for (const int block : {1, 2, 5, 16, 17, 35}) {
        const auto executor =
            cpu_executor(m, {.block = block}, {.kernels = kernels, .min_gemm_tokens_packed = cpu::kMinGemmTokens});
        EXPECT_EQ(copied(executor->forward(tokens, Logits::kAll)), all)
            << name_of(type) << " " << kernels->name << " blocks of " << block;
      }
      if (only_many) {  // and as many tokens as there are, held as few
        const auto few = copied(
            cpu_executor(m, {}, {.kernels = kernels, .min_gemm_tokens_packed = 71})->forward(tokens, Logits::kAll));
        for (const int block : {1, 8, 9, 17}) {
          const auto executor = cpu_executor(m, {.block = block}, {.kernels = kernels, .min_gemm_tokens_packed = 71});
          EXPECT_EQ(copied(executor->forward(tokens, Logits::kAll)), few)
              << name_of(type) << " " << kernels->name << " few in blocks of " << block;
        }
        continue;
      }
      testing::Random random(3);
      const auto executor = cpu_executor(m, {.block = 8}, {.kernels = kernels});
      for (size_t at = 0; at < tokens.size();) {  // calls of random lengths, logits asked for now and then
        const size_t n = std::min(tokens.size() - at, static_cast<size_t>(1 + random.below(20)));
        const Logits want = random.below(3) == 0 ? Logits::kNone : Logits::kLast;
        const auto logits = executor->forward(std::span(tokens).subspan(at, n), want);
        at += n;
        EXPECT_EQ(executor->position(), static_cast<int>(at));
        if (want == Logits::kNone) {
          EXPECT_TRUE(logits.empty());
        } else {
          EXPECT_EQ(copied(logits), copied(std::span(all).subspan((at - 1) * vocab, vocab))) << "after " << at;
        }
      }
    }
  }
}

TEST_P(ExecutorTest, ResetForgets) {
  const RandomModel m(GetParam().config(), DType::kF32);
  const auto tokens = m.tokens(30), other = m.tokens(50, 77);
  const auto executor = cpu_executor(m, {});
  const auto expected = copied(executor->forward(tokens, Logits::kLast));
  executor->forward(other, Logits::kNone);
  executor->reset();
  EXPECT_EQ(executor->position(), 0);
  EXPECT_EQ(copied(executor->forward(tokens, Logits::kLast)), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, ExecutorTest, ::testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

TEST(CpuExecutor, ExpertsInMxfp4AgreeWithTheReference) {
  const RandomModel m(testing::odd_expert_config(), DType::kMXFP4);
  const auto tokens = m.tokens(40);
  const auto expected = reference(m, tokens, Logits::kAll);
  for (const cpu::Kernels* kernels : cpu::available_kernels()) {
    for (const int block : {0, 1, 3}) {
      const auto executor = cpu_executor(m, {.block = block}, {.kernels = kernels});
      EXPECT_LE(error_of(executor->forward(tokens, Logits::kAll), expected), 3e-4) << kernels->name;
    }
  }
}

TEST(CpuExecutor, WindowsStayRightOverManyTurnsOfTheRing) {
  ModelConfig c = testing::odd_config();
  c.max_context = 1000;
  c.layers = {{7, 1}, {128, 1}, {256, 0}, {300, 0}, {0, 1}};
  const RandomModel m(c, DType::kF32);
  const auto tokens = m.tokens(700);
  const auto ref = testing::one_sequence(make_ref_executor(m.config, m.plan, m.weights, {.context = 1000}));
  const auto expected = copied(ref->forward(tokens, Logits::kAll));
  std::vector<float> first;
  for (const int block : {300, 1, 5, 16, 130, 700}) {
    const auto executor = cpu_executor(m, {.context = 1000, .block = block});
    const auto logits = copied(executor->forward(tokens, Logits::kAll));
    EXPECT_LE(error_of(logits, expected), 3e-4) << "blocks of " << block;
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << "blocks of " << block;
  }
}

TEST(CpuExecutor, TheContextTakesWhatTheModelSays) {
  const RandomModel m(testing::odd_config(), DType::kF32);
  const size_t dim = static_cast<size_t>(m.config.head_dim), heads = static_cast<size_t>(m.config.kv_heads);
  for (const int context : {5, 19, 100}) {
    const size_t has = cpu_executor(m, {.context = context})->context_bytes();
    EXPECT_GE(has, kv_cache_bytes(m.config, context));
    // 16 bits per element and a scale per vector, for whole pages of 16 tokens; a head begins on a line of 64 bytes.
    const size_t head = (2 * 16 * (dim * sizeof(int16_t) + sizeof(float)) + 63) / 64 * 64;
    EXPECT_EQ(has, m.config.layers.size() * heads * head * static_cast<size_t>((context + 15) / 16));
  }
}

TEST(CpuExecutor, ATextLongerThanTheContextIsRefusedWithTheNumbersAndChangesNothing) {
  const RandomModel m(testing::plain_config(), DType::kF32);
  const auto executor = cpu_executor(m, {.context = 10});
  const auto tokens = m.tokens(11);
  try {
    executor->forward(tokens, Logits::kLast);
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.code, ErrorCode::kUsage);
    EXPECT_NE(std::string(failure.what()).find("10"), std::string::npos);
    EXPECT_NE(std::string(failure.what()).find("11"), std::string::npos);
  }
  EXPECT_EQ(executor->position(), 0);
  EXPECT_EQ(executor->forward(std::span(tokens).first(10), Logits::kLast).size(), 50u);
  EXPECT_THROW(executor->forward(std::span(tokens).first(1), Logits::kLast), Failure);
}

TEST(CpuExecutor, BadOptionsAndTokensAreUsageErrors) {
  const RandomModel m(testing::plain_config(), DType::kF32);
  EXPECT_THROW(make_cpu_executor(m.config, m.plan, m.weights, {.context = 0}), Failure);
  EXPECT_THROW(make_cpu_executor(m.config, m.plan, m.weights, {.context = 8, .threads = -1}), Failure);
  EXPECT_THROW(make_cpu_executor(m.config, m.plan, m.weights, {.context = 8, .block = -1}), Failure);
  const auto executor = cpu_executor(m, {});
  const int32_t bad[] = {3, 50};
  EXPECT_THROW(executor->forward(bad, Logits::kLast), Failure);
  const int32_t negative = -1;
  EXPECT_THROW(executor->forward({&negative, 1}, Logits::kLast), Failure);
  EXPECT_THROW(executor->forward({}, Logits::kLast), Failure);
}

TEST(CpuExecutor, WeightsThatStayWhereTheyLieGiveTheSameButForRounding) {
  const RandomModel m(testing::odd_config(), DType::kQ4_K);
  const auto tokens = m.tokens(40);
  const auto packed = cpu_executor(m, {}), mapped = cpu_executor(m, {}, {.pack = false});
  const auto expected = copied(packed->forward(tokens, Logits::kAll));
  EXPECT_LE(error_of(mapped->forward(tokens, Logits::kAll), expected), 4e-2);
}

TEST(CpuExecutor, ADecodedTokenAllocatesNothing) {
  const RandomModel m(testing::odd_config(), DType::kQ4_K);
  const auto executor = cpu_executor(m, {.block = 16});
  const auto tokens = m.tokens(40);
  const int32_t next = 3;
  executor->forward(tokens, Logits::kLast);
  const float* logits = executor->forward({&next, 1}, Logits::kLast).data();
  const long before = testing::allocations();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(executor->forward({&next, 1}, Logits::kLast).data(), logits);  // up to 46 of 48
  EXPECT_EQ(testing::allocations(), before);
}

TEST(Bandwidth, IsAPlausibleNumber) {
  ThreadPool pool(2);
  const double rate = measure_read_bandwidth(pool, size_t{64} << 20);
  EXPECT_GT(rate, 0.1);
  EXPECT_LT(rate, 5000);
}

}  // namespace
}  // namespace doppler
