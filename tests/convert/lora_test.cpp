// Adapters merged into a checkpoint's weights.
#include <gmock/gmock.h>

#include "base/half.h"
#include "format/decode.h"
#include "import/lora.h"
#include "support/checkpoint.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRank = 2;
const std::string kMatrix = "model.layers.1.mlp.down_proj";

// A checkpoint and an adapter of one of its matrices, whose halves count up.
struct Adapted : testing::Checkpoint {
  Adapted() : Checkpoint("llama-a") {
    const std::vector<int64_t>& shape = tensor(kMatrix + ".weight").shape;
    for (int64_t i = 0; i < kRank * shape[1]; ++i) a.push_back(0.001f * static_cast<float>(i));
    for (int64_t i = 0; i < shape[0] * kRank; ++i) b.push_back(0.01f * static_cast<float>(i % 17) - 0.05f);
    halves = {{"base_model.model." + kMatrix + ".lora_A.weight", "F32", {kRank, shape[1]}, bytes_of(a), {}},
              {"base_model.model." + kMatrix + ".lora_B.weight", "F32", {shape[0], kRank}, bytes_of(b), {}}};
    adapter = {{"peft_type", "LORA"}, {"r", kRank}, {"lora_alpha", 6}, {"bias", "none"}};
  }
  static std::span<const std::byte> bytes_of(const std::vector<float>& values) {
    return std::as_bytes(std::span(values));
  }
  std::string folder() const { return (scratch() / "adapter").string(); }
  ConvertOptions merged() {
    std::filesystem::create_directories(folder());
    testing::spill(folder() + "/adapter_config.json", adapter.dump());
    write_safetensors(folder() + "/adapter_model.safetensors", halves);
    ConvertOptions options = testing::with("f32");
    options.adapters = {folder()};
    return options;
  }
  std::string refused() {
    const ConvertOptions options = merged();
    return testing::sentence([&] { convert(save(), target(), options); });
  }

  std::vector<float> a, b;
  std::vector<RawTensor> halves;
  Json adapter;
};

std::vector<float> weights_of(const std::filesystem::path& artefact, const std::string& slot) {
  const RdrrReader reader = RdrrReader::open(artefact);
  const Tensor tensor = reader.tensor(*reader.find_slot(slot));
  std::vector<float> values(static_cast<size_t>(tensor.rows() * tensor.cols()));
  decode_row(tensor.dtype, tensor.bytes.data(), values.data(), values.size());
  return values;
}

void expect_merged(Adapted& m, float scale) {
  const testing::Scratch scratch;
  convert(m.save(), scratch / "plain", testing::with("f32"));
  convert(m.save(), scratch / "merged", m.merged());
  const std::vector<float> plain = weights_of(scratch / "plain", "layer1.down_proj"),
                           merged = weights_of(scratch / "merged", "layer1.down_proj");
  const auto cols = static_cast<size_t>(m.halves[0].shape[1]), rank = static_cast<size_t>(kRank);
  double largest = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    double delta = 0;
    for (size_t k = 0; k < rank; ++k) delta += double{m.b[i / cols * rank + k]} * m.a[k * cols + i % cols];
    ASSERT_NEAR(merged[i], plain[i] + scale * delta, 1e-6) << i;
    largest = std::max(largest, std::abs(delta));
  }
  EXPECT_GT(largest, 1e-3) << "the adapter changes nothing";
  EXPECT_EQ(weights_of(scratch / "plain", "layer0.down_proj"), weights_of(scratch / "merged", "layer0.down_proj"));
}

TEST(Lora, IsAddedToItsMatrixTimesAlphaOverTheRank) {
  Adapted m;
  expect_merged(m, 6.f / kRank);
}

TEST(Lora, IsAddedToWhatAQuantisedMatrixStandsFor) {
  Adapted m;
  RawTensor& matrix = m.tensor(kMatrix + ".weight");
  std::vector<std::byte>& codes = m.own(matrix);
  codes.resize(codes.size() / 2);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = std::byte(i % 0x50);
  matrix.bytes = codes;
  matrix.dtype = "F8_E4M3";
  const float scale = 0.01f;
  m.tensors.push_back({kMatrix + ".weight_scale", "F32", {1}, std::as_bytes(std::span(&scale, 1)), {}});
  m.config["quantization_config"] = {{"quant_method", "fp8"}};
  expect_merged(m, 6.f / kRank);
}

TEST(Lora, RsLoraDividesByTheRootOfTheRank) {
  Adapted m;
  m.adapter["use_rslora"] = true;
  expect_merged(m, 6.f / std::sqrt(static_cast<float>(kRank)));
}

TEST(Lora, WhatIsNoThinProductIsRefusedByName) {
  for (const auto& [key, value] : {std::pair<const char*, Json>("use_dora", true),
                                   {"fan_in_fan_out", true},
                                   {"bias", "all"},
                                   {"modules_to_save", Json::array({"lm_head"})},
                                   {"peft_type", "IA3"}}) {
    Adapted m;
    m.adapter[key] = value;
    EXPECT_THAT(m.refused(), HasSubstr(key));
  }
}

TEST(Lora, AnAdapterOfAnotherModelIsRefused) {
  Adapted other;
  other.halves[0].name = "base_model.model.model.layers.77.mlp.down_proj.lora_A.weight";
  other.halves[1].name = "base_model.model.model.layers.77.mlp.down_proj.lora_B.weight";
  EXPECT_THAT(other.refused(), HasSubstr("does not fit the model"));
  Adapted half;
  half.halves.pop_back();
  EXPECT_THAT(half.refused(), HasSubstr("do not fit"));
  Adapted missing;
  ConvertOptions options = missing.merged();
  options.adapters = {(missing.scratch() / "nothing").string()};
  EXPECT_THAT(testing::sentence([&] { convert(missing.save(), missing.target(), options); }),
              HasSubstr("this is not an adapter"));
}

}  // namespace
}  // namespace doppler
