// Nothing may grow: neither with tokens nor with models loaded and let go. Short here; a long run sets the environment:
//   DOPPLER_SOAK_TOKENS=10000 DOPPLER_SOAK_LOADS=1000 engine_tests --gtest_filter='*Soak*'
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/backend.h"
#include "engine/session.h"
#include "gpu/webgpu/device.h"
#include "support/allocations.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

int asked_for(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

class Soak : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() != std::string("webgpu")) return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  static LoadedModel tiny() { return LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny"); }
  static int say(Session& session, const LoadedModel& model, int tokens, uint64_t seed) {
    const std::vector<int32_t> prompt = model.tokenizer->encode("Once upon", true);
    const GenerateOptions options{
        .max_tokens = tokens, .sampling = {.temperature = 1, .seed = seed}, .decode_batch = 4};
    return static_cast<int>(session.generate(prompt, options).token_ids.size());
  }
};

// Does `work` three times. The first two may fill caches; the third must give back everything it asked for, on the host
// and on the device.
template <class Work>
void expect_no_growth(Work&& work) {
  work();
  work();
  const long host = testing::live_allocations();
  const uint64_t device = gpu::live_buffer_bytes();
  work();
  EXPECT_EQ(testing::live_allocations(), host);
  EXPECT_EQ(gpu::live_buffer_bytes(), device);
}

TEST_P(Soak, TokensLeaveNothingBehind) {
  const LoadedModel model = tiny();
  Session session(make_executor(model, GetParam(), {.context = 512}), &*model.tokenizer, 512);
  const int tokens = asked_for("DOPPLER_SOAK_TOKENS", GetParam() == std::string("cpu") ? 128 : 6);
  expect_no_growth([&] {
    uint64_t seed = 0;
    for (int left = tokens; left > 0;) left -= say(session, model, std::min(400, left), seed++);
  });
}

TEST_P(Soak, ModelsLetGoLeaveNothingBehind) {
  const int loads = asked_for("DOPPLER_SOAK_LOADS", GetParam() == std::string("cpu") ? 4 : 1);
  expect_no_growth([&] {
    for (int i = 0; i < loads; ++i) {
      const LoadedModel model = tiny();
      Session session(make_executor(model, GetParam(), {.context = 64}), &*model.tokenizer, 64);
      say(session, model, 2, 1);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Cpu, Soak, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(WebGpu, Soak, ::testing::Values("webgpu"));

}  // namespace
}  // namespace doppler
