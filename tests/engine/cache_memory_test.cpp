// How much keys and values may take where nobody says.
#include <gtest/gtest.h>

#include "engine/backend.h"
#include "model/cost.h"

namespace doppler {
namespace {

TEST(CacheMemory, EnoughForAllSequencesButAtMostHalfOfWhatIsLeft) {
  const LoadedModel model = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  const uint64_t one = kv_cache_bytes(model.config, 512), weights = model.artefact_bytes;
  ASSERT_GT(weights, 0u);
  const auto bytes = [&](const char* backend, uint64_t available) {
    return default_cache_memory(model, {backend, ""}, 512, 32, available);
  };
  EXPECT_EQ(bytes("cpu", weights + 1000 * one), 32 * one);
  EXPECT_EQ(bytes("cpu", weights + 40 * one), 20 * one);
  EXPECT_EQ(bytes("cpu", weights + 10 * one), 0u);  // a few contexts, whatever is left
  EXPECT_EQ(bytes("cpu", weights / 2), 0u);
  EXPECT_EQ(bytes("webgpu", weights + 1000 * one), 0u);
  EXPECT_GT(available_memory(), 0u);
}

}  // namespace
}  // namespace doppler
