// A dense family is one JSON file: Mistral, Seed-OSS and MiniCPM have no line of C++ to themselves.
#include <gmock/gmock.h>

#include "engine/backend.h"
#include "support/checkpoint.h"
#include "support/reference.h"
#include "support/runner.h"

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

// So do theirs without biases, and where every multiplier comes to one.
struct AsSeedOss : testing::Checkpoint {
  AsSeedOss() : Checkpoint("llama-a") {
    config["architectures"] = Json::array({"SeedOssForCausalLM"});
    config["model_type"] = "seed_oss";
    config["attention_bias"] = config["attention_out_bias"] = false;
    config["head_dim"] = config["hidden_size"].get<int>() / config["num_attention_heads"].get<int>();
  }
};
struct AsMiniCpm : testing::Checkpoint {
  AsMiniCpm() : Checkpoint("llama-a") {
    config["architectures"] = Json::array({"MiniCPMForCausalLM"});
    config["model_type"] = "minicpm";
    config["scale_emb"] = 1;
    config["scale_depth"] = std::sqrt(config["num_hidden_layers"].get<double>());
    config["dim_model_base"] = config["hidden_size"];
  }
};

void expect_every_stage(testing::Checkpoint& checkpoint, const std::string& family) {
  convert(checkpoint.save(), checkpoint.target(), testing::with("f32"));
  const LoadedModel model = LoadedModel::load(checkpoint.target());
  EXPECT_EQ(RdrrReader::open(checkpoint.target()).manifest()["metadata"]["family"], family);
  const testing::Reference reference(DOPPLER_TEST_DATA "/models/llama-a");
  for (const char* backend : {"ref", "cpu"}) {
    const auto executor = make_executor(model, backend, {.context = 256, .threads = 2, .block = 0, .checked = true});
    const auto errors = testing::stage_errors(*executor, model.plan, reference);
    EXPECT_EQ(errors.size(), reference.by_step.size());
    for (const auto& [stage, error] : errors) EXPECT_LE(error, 1e-3) << backend << " " << stage;
  }
}

TEST(SeventhFamily, ComputesEveryStage) {
  AsMistral checkpoint(nullptr);
  expect_every_stage(checkpoint, "mistral");
}

TEST(FurtherFamilies, ComputeEveryStage) {
  AsSeedOss seed_oss;
  expect_every_stage(seed_oss, "seed_oss");
  AsMiniCpm minicpm;
  expect_every_stage(minicpm, "minicpm");
}

TEST(FurtherFamilies, MultipliersAreExpressionsOfDepthAndWidth) {
  AsMiniCpm checkpoint;
  checkpoint.config["scale_emb"] = 12;
  checkpoint.config["scale_depth"] = 1.4;
  checkpoint.config["dim_model_base"] = 16;
  convert(checkpoint.save(), checkpoint.target(), testing::with("f32"));
  const ModelConfig c = LoadedModel::load(checkpoint.target()).config;
  EXPECT_FLOAT_EQ(c.embed_scale, 12);
  EXPECT_FLOAT_EQ(c.residual_scale, 1.4f / std::sqrt(static_cast<float>(c.layer_count())));
  EXPECT_FLOAT_EQ(c.logit_scale, 16.f / static_cast<float>(c.hidden));
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
    const auto executor = testing::one_sequence(make_executor(model, backend, {.context = 64, .threads = 1}));
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
