// Nothing may grow: neither with tokens nor with models loaded and let go. Short here; a long run sets the environment:
//   DOPPLER_SOAK_TOKENS=10000 DOPPLER_SOAK_LOADS=1000 engine_tests --gtest_filter='*Soak*'
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "engine/backend.h"
#include "engine/session.h"
#include "gpu/webgpu/device.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

int asked_for(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

// MiB of this process in memory; always 0 under a sanitizer, which keeps freed memory on purpose and looks for leaks
// itself.
double resident_mib() {
#if defined(__SANITIZE_ADDRESS__)
  return 0;
#else
  ::malloc_trim(0);  // what the allocator keeps for later is not a leak
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
#endif
}

class Soak : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() != std::string("webgpu")) return;
    testing::choose_gpu_driver();
    std::string why;
    if (!gpu::webgpu_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  }
  static LoadedModel tiny() { return LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny"); }
  static int say(Session& session, const LoadedModel& model, int tokens, uint64_t seed) {
    const std::vector<int32_t> prompt = model.tokenizer->encode("Once upon", true);
    const GenerateOptions options{.max_tokens = tokens, .sampling = {.temperature = 1, .seed = seed}};
    return static_cast<int>(session.generate(prompt, options).token_ids.size());
  }
};

// Does `work` over and over. The first time may fill caches, and a later one may still find one to fill (how many
// tokens a submit takes depends on how fast they come); but a leak grows every time.
template <class Work>
void expect_no_growth(double most_mib, Work&& work) {
  work();
  double grown = 0;
  uint64_t before = 0;
  for (int again = 0; again < 4; ++again) {
    const double host = resident_mib();
    before = gpu::live_buffer_bytes();
    work();
    grown = resident_mib() - host;
    if (grown <= most_mib && gpu::live_buffer_bytes() == before) break;
  }
  EXPECT_EQ(gpu::live_buffer_bytes(), before);
  EXPECT_LE(grown, most_mib);
  ::testing::Test::RecordProperty("mib", std::to_string(grown));
}

TEST_P(Soak, TokensLeaveNothingBehind) {
  const LoadedModel model = tiny();
  Session session(make_executor(model, GetParam(), {.context = 512}), &*model.tokenizer, 512);
  const int half = asked_for("DOPPLER_SOAK_TOKENS", 16) / 2;
  uint64_t seed = 0;
  expect_no_growth(4, [&] {
    for (int left = half; left > 0;) left -= say(session, model, std::min(400, left), seed++);
  });
}

TEST_P(Soak, ModelsLetGoLeaveNothingBehind) {
  const int half = asked_for("DOPPLER_SOAK_LOADS", 4) / 2;
  expect_no_growth(8, [&] {
    for (int i = 0; i < half; ++i) {
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
