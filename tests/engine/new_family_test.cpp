// A dense family is one JSON file: Mistral has no line of C++ to itself.
#include <gmock/gmock.h>

#include "engine/backend.h"
#include "support/checkpoint.h"
#include "support/reference.h"

namespace doppler {
namespace {

// Mistral's layers are those of Llama where its window is off, so Llama's reference checkpoint serves as one of its
// own.
struct AsMistral : testing::Checkpoint {
  explicit AsMistral(const Json& window) : Checkpoint("llama-a") {
    config["architectures"] = Json::array({"MistralForCausalLM"});
    config["model_type"] = "mistral";
    config["sliding_window"] = window;
  }
};

TEST(SeventhFamily, ComputesEveryStage) {
  AsMistral checkpoint(nullptr);
  convert(checkpoint.save(), checkpoint.target(), testing::with("f32"));
  const LoadedModel model = LoadedModel::load(checkpoint.target());
  EXPECT_EQ(RdrrReader::open(checkpoint.target()).manifest()["metadata"]["family"], "mistral");
  const testing::Reference reference(DOPPLER_TEST_DATA "/models/llama-a");
  for (const char* backend : {"ref", "cpu"}) {
    const auto executor = make_executor(model, backend, {.context = 256, .threads = 2, .block = 0, .checked = true});
    const auto errors = testing::stage_errors(*executor, model.plan, reference);
    EXPECT_EQ(errors.size(), reference.stages.tensors().size());
    for (const auto& [stage, error] : errors) EXPECT_LE(error, 1e-3) << backend << " " << stage;
  }
}

TEST(SeventhFamily, ItsWindowCoversEveryLayer) {
  constexpr int kWindow = 5;
  AsMistral windowed(kWindow), open(nullptr);
  convert(windowed.save(), windowed.target(), testing::with("f32"));
  convert(open.save(), open.target(), testing::with("f32"));
  const LoadedModel near = LoadedModel::load(windowed.target()), far = LoadedModel::load(open.target());
  for (const LayerConfig& layer : near.config.layers) EXPECT_EQ(layer, (LayerConfig{kWindow, 0}));
  for (const LayerConfig& layer : far.config.layers) EXPECT_EQ(layer, (LayerConfig{0, 0}));
  const std::vector<int32_t> prompt = {3, 14, 15, 92, 65, 35, 89, 79};
  const auto logits = [&](const LoadedModel& model, size_t tokens, const char* backend) {
    const auto executor = make_executor(model, backend, {.context = 64, .threads = 1});
    const std::span<const float> out = executor->forward(std::span(prompt).first(tokens), Logits::kLast);
    return std::vector<float>(out.begin(), out.end());
  };
  EXPECT_EQ(logits(near, kWindow, "cpu"), logits(far, kWindow, "cpu"))
      << "a prompt inside the window sees no difference";
  EXPECT_GT(testing::relative_error(logits(near, 8, "cpu"), logits(far, 8, "cpu")), 1e-3);
  EXPECT_LT(testing::relative_error(logits(near, 8, "cpu"), logits(near, 8, "ref")), 1e-4);
}

TEST(SeventhFamily, UnknownKeysStopIt) {
  AsMistral checkpoint(nullptr);
  checkpoint.config["attention_bias"] = true;
  EXPECT_THAT(checkpoint.refusal(), ::testing::HasSubstr("attention_bias"));
}

}  // namespace
}  // namespace doppler
