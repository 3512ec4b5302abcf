// A weight that is no number: the answer ends with an error that names the model, the first step whose output is not
// finite, and the tensor; answers beside it go on.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "cpu/cpu_executor.h"
#include "cpu/random_model.h"
#include "engine/decode_loop.h"
#include "engine/generator.h"
#include "engine/not_finite.h"
#include "engine/perplexity.h"
#include "engine/session.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/device.h"
#include "ref/ref_executor.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr int kContext = 64;
constexpr int32_t kBadToken = 17;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

ModelConfig planted_config() {
  ModelConfig c = testing::plain_config();
  c.id = "planted";
  c.hidden = 256;  // a block of Q4_K, which a GPU's fused kernels multiply in int8
  c.ffn = 256;
  c.layers = {{0, 0}, {0, 0}, {0, 0}};
  return c;
}

// The model with one weight changed. A block of Q4_K gets it as its scale, a float as itself.
struct Planted : RandomModel {
  Planted(DType type, const std::string& slot, int64_t row, float value, ModelConfig c = planted_config())
      : RandomModel(std::move(c), type) {
    Tensor tensor = weights.at(slot);
    bytes.assign(tensor.bytes.begin(), tensor.bytes.end());
    std::byte* at = bytes.data() + static_cast<size_t>(row) * tensor.stride();
    const uint16_t half = std::isnan(value) ? 0x7e00 : 0x7c00, brain = std::isnan(value) ? 0x7fc0 : 0x7f80;
    switch (tensor.dtype) {
      case DType::kF32: std::memcpy(at, &value, sizeof value); break;
      case DType::kBF16: std::memcpy(at, &brain, sizeof brain); break;
      case DType::kQ4_K: std::memcpy(at, &half, sizeof half); break;
      default: ADD_FAILURE() << "a type without a place for it";
    }
    tensor.bytes = bytes;
    weights.add(slot, tensor);
  }
  std::vector<std::byte> bytes;
};

std::unique_ptr<Executor> make(const std::string& backend, const RandomModel& m, int sequences = 1) {
  const ExecutorOptions options{.context = kContext, .block = 32, .sequences = sequences};
  std::unique_ptr<Executor> executor = backend == "webgpu" ? make_gpu_executor(m.config, m.plan, m.weights, options)
                                       : backend == "ref"  ? make_ref_executor(m.config, m.plan, m.weights, options)
                                                           : make_cpu_executor(m.config, m.plan, m.weights, options);
  executor->set_model({&m.config, &m.plan, &m.weights});
  return executor;
}

void expect_names(const Error& error, const std::string& step, const std::string& tensor) {
  EXPECT_EQ(error.code, ErrorCode::kFormat) << error.message();
  EXPECT_EQ(error.where, "planted: " + step) << error.message();
  EXPECT_NE(error.got.find("in tensor " + tensor + ","), std::string::npos) << error.message();
}

class NotFinite : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "webgpu") return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  std::vector<int32_t> prompt(bool bad) const { return {3, 9, bad ? kBadToken : 4, 12, 30}; }
};

TEST_P(NotFinite, EndsTheAnswerWithTheStepAndTheTensor) {
  const struct {
    DType type;
    const char* slot;
    int64_t row;
    const char* step;
  } kCases[] = {{DType::kQ4_K, "final_norm", 0, "final_norm"},
                {DType::kBF16, "final_norm", 0, "final_norm"},
                {DType::kQ4_K, "layer1.attn_norm", 0, "layer1.attn_norm"},
                {DType::kBF16, "layer1.up_proj", 5, "layer1.up_proj"},
                {DType::kQ4_K, "layer1.down_proj", 7, "layer1.ffn_out"},
                {DType::kQ4_K, "layer2.v_proj", 1, "layer2.v_proj"},
                {DType::kQ4_K, "embed", kBadToken, "embed"},
                {DType::kBF16, "embed", kBadToken, "embed"}};
  const bool slow = GetParam() == "webgpu";  // software makes its programs anew for each
  for (const auto& c : kCases) {
    for (const float value : {kNaN, kInf}) {
      if (slow && value == kInf) continue;
      SCOPED_TRACE(std::string(c.slot) + " " + std::to_string(value));
      const Planted m(c.type, c.slot, c.row, value);
      for (const float temperature : {0.0f, 1.0f}) {
        if (slow && temperature > 0 && &c != kCases) continue;
        Session session(make(GetParam(), m), nullptr, kContext);
        const GenerateOptions options{.max_tokens = 6, .sampling = {.temperature = temperature, .seed = 1}};
        expect_names(error_of([&] { session.generate(prompt(true), options); }), c.step, c.slot);
      }
    }
  }
}

// What the device chooses by itself: the logits of the prompt are fine, those of a token in the answer are not.
TEST_P(NotFinite, EndsAnAnswerThatRunsIntoIt) {
  const RandomModel sound(planted_config(), DType::kQ4_K);
  Session first(make(GetParam(), sound), nullptr, kContext);
  for (const float temperature : {0.0f, 1.0f}) {
    if (GetParam() == "webgpu" && temperature > 0) continue;  // software makes its programs anew for each
    GenerateOptions options{.max_tokens = 8, .sampling = {.temperature = temperature, .seed = 4}};
    std::vector<int32_t> before = prompt(false);
    const std::vector<int32_t> ids = first.generate(before, options).token_ids;
    const auto known = [&](int32_t id) { return std::find(before.begin(), before.end(), id) != before.end(); };
    size_t at = 0;  // a token that is new there, and not the first
    while (at < ids.size() && (at < 2 || known(ids[at]))) before.push_back(ids[at++]);
    ASSERT_LT(at, ids.size());
    const Planted m(DType::kQ4_K, "embed", ids[at], kNaN);
    Session session(make(GetParam(), m), nullptr, kContext);
    std::vector<int32_t> seen;
    size_t pieces = 0;
    const Error error = error_of([&] { session.generate(prompt(false), options, [&](auto) { return ++pieces > 0; }); });
    expect_names(error, "embed", "embed");
    EXPECT_GE(pieces, at);
    // And the session goes on with what does not touch it.
    options.max_tokens = static_cast<int>(at);
    EXPECT_EQ(session.generate(prompt(false), options).token_ids,
              std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<long>(at)));
  }
}

TEST_P(NotFinite, EndsAMeasurement) {
  const Planted m(DType::kQ4_K, "layer1.down_proj", 7, kNaN);
  const auto executor = make(GetParam(), m);
  DecodePace pace(4);
  const std::vector<int32_t> ids = prompt(true);
  expect_names(error_of([&] { run_greedy(*executor, ids, 0, 4, pace); }), "layer1.ffn_out", "layer1.down_proj");
  expect_names(error_of([&] { run_greedy(*executor, {}, 3, 4, pace); }), "layer1.ffn_out", "layer1.down_proj");
  expect_names(error_of([&] { perplexity(*executor, ids, 3); }), "layer1.ffn_out", "layer1.down_proj");
  expect_names(error_of([&] { score_tokens(*executor, ids, 2); }), "layer1.ffn_out", "layer1.down_proj");
}

TEST_P(NotFinite, EndsNoAnswerBesideIt) {
  const Planted m(DType::kQ4_K, "embed", kBadToken, kNaN);
  const GenerateOptions options{.max_tokens = 6};
  const auto alone = [&] {
    Session session(make(GetParam(), m), nullptr, kContext);
    return session.generate(prompt(false), options).token_ids;
  }();
  const auto executor = make(GetParam(), m, 8);
  Generator generator(*executor, m.config, nullptr, {.scheduler = {.context = kContext, .sequences = 8}});
  std::vector<std::vector<int32_t>> answers(3);
  std::vector<Error> errors;
  int after = 0;
  const auto submit = [&](bool bad, size_t which, int samples) {
    generator.submit({.prompt = prompt(bad), .options = options, .samples = samples},
                     [&, which](const GenerateEvent& e) {
                       if (!errors.empty() && which == 1) ++after;
                       if (e.failure) errors.push_back(*e.failure);
                       if (e.finished) answers[which] = e.finished->token_ids;
                       return true;
                     });
  };
  submit(false, 0, 1);
  submit(true, 1, 2);
  submit(false, 2, 1);
  while (generator.step()) {
  }
  ASSERT_EQ(errors.size(), 1u) << "one for the request, not for each of its samples";
  EXPECT_EQ(after, 0) << "it was its last event";
  expect_names(errors[0], "embed", "embed");
  EXPECT_TRUE(answers[1].empty());
  EXPECT_EQ(answers[0], alone);
  EXPECT_EQ(answers[2], alone);
  EXPECT_EQ(executor->cache().held_pages(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Backends, NotFinite, ::testing::Values("cpu", "ref", "webgpu"),
                         [](const auto& backend) { return backend.param; });

// An embedding that is the head, too: the token's logit alone is no number, of whatever text.
TEST(NotFiniteLogits, OneLogitIsEnough) {
  ModelConfig c = planted_config();
  c.tied_output = true;
  const Planted m(DType::kBF16, "embed", kBadToken, kNaN, c);
  Session session(make("cpu", m), nullptr, kContext);
  expect_names(error_of([&] { session.generate(std::vector<int32_t>{1, 2}, {}); }), "logits", "embed");
}

// Weights that are all finite, and sums that are not: nobody can say that the file is at fault.
TEST(NotFiniteLogits, AnOverflowIsNoFaultOfTheWeights) {
  RandomModel m(planted_config(), DType::kF32);
  Tensor head = m.weights.at("lm_head");
  const std::vector<float> huge(head.bytes.size() / sizeof(float), 3e38f);
  head.bytes = std::as_bytes(std::span(huge));
  m.weights.add("lm_head", head);
  Session session(make("ref", m), nullptr, kContext);
  const Error error = error_of([&] { session.generate(std::vector<int32_t>{1, 2}, {}); });
  EXPECT_EQ(error.code, ErrorCode::kInternal) << error.message();
  EXPECT_EQ(error.where, "planted: logits");
}

TEST(NotFiniteLogits, AnExecutorThatKnowsNoModelStillSaysWhatHappened) {
  const Planted m(DType::kF32, "final_norm", 0, kNaN);
  const auto executor = make_cpu_executor(m.config, m.plan, m.weights, {.context = kContext});
  const std::vector<int32_t> text = {1, 2};
  EXPECT_EQ(explain_not_finite(*executor, text, 2).code, ErrorCode::kInternal);
}

TEST(Likeliest, SaysWhetherAllAreFinite) {
  for (const size_t count : {1u, 5u, 256u, 300u, 5000u}) {
    std::vector<float> logits(count, 2.0f);
    EXPECT_TRUE(likeliest(logits).finite);
    for (const size_t at : {size_t{0}, count / 2, count - 1}) {
      for (const float bad : {kNaN, kInf, -kInf}) {
        const float before = std::exchange(logits[at], bad);
        EXPECT_FALSE(likeliest(logits).finite) << count << " " << at;
        logits[at] = before;
      }
    }
    std::fill(logits.begin(), logits.end(), 3e38f);  // whose sum is infinite
    EXPECT_TRUE(likeliest(logits).finite) << count;
  }
}

}  // namespace
}  // namespace doppler
