// A quantised checkpoint as a model of its own, without an artefact between. That every format gives the values it
// stands for is held by tests/cli/quantised_test.py.
#include "import/checkpoint.h"

#include <gmock/gmock.h>

#include "base/half.h"
#include "import/quantisation_config.h"
#include "support/checkpoint.h"

namespace doppler {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kMatrix = "model.layers.1.mlp.up_proj.weight";  // [320, 128]
constexpr float kScale = 0.0625f;

// llama-a with one matrix in FP8: code 0x38 is one, and 0x40 two.
struct WithFp8 : Checkpoint {
  WithFp8() : Checkpoint("llama-a") {
    RawTensor& matrix = tensor(kMatrix);
    std::vector<std::byte>& codes = own(matrix);
    codes.assign(320 * 128, std::byte{0x38});
    codes[5 * 128 + 7] = std::byte{0x40};
    matrix.bytes = codes;
    matrix.dtype = "F8_E4M3";
    RawTensor scale{std::string(kMatrix) + "_scale", "F32", {1}, std::as_bytes(std::span(&kScale, 1)), {}};
    tensors.push_back(scale);
    config["quantization_config"] = {{"quant_method", "fp8"}};
  }
};

TEST(Checkpoint, QuantisedMatricesAreDecodedToBf16AndTheRestStaysWhereItIs) {
  WithFp8 c;
  const OpenedCheckpoint opened = open_checkpoint(c.save());
  const Tensor* matrix = opened.weights.find("layer1.up_proj");
  ASSERT_TRUE(matrix);
  EXPECT_EQ(matrix->dtype, DType::kBF16);
  const auto* values = reinterpret_cast<const uint16_t*>(matrix->bytes.data());
  EXPECT_EQ(bf16_to_f32(values[0]), kScale);
  EXPECT_EQ(bf16_to_f32(values[5 * 128 + 7]), 2 * kScale);
  EXPECT_THAT(opened.notes, Contains(HasSubstr("1 as FP8")));
  EXPECT_LT(opened.copied_bytes, 320u * 128 * 2 + 64 * 1024) << "norms and one matrix";
  EXPECT_EQ(opened.file_bytes, [] {
    uint64_t bytes = 0;
    const SafetensorsFolder all(testing::model("llama-a"));
    for (const auto& [name, raw] : all.tensors()) bytes += raw.bytes.size();
    return bytes - 320 * 128 + sizeof kScale;
  }());
}

TEST(Checkpoint, WhatDoesNotFitInMemoryWhenItIsDecodedIsToldBefore) {
  WithFp8 c;
  const std::filesystem::path folder = c.save();
  EXPECT_NO_THROW(open_checkpoint(folder, 320 * 128 * 2));
  EXPECT_THAT(sentence([&] { open_checkpoint(folder, 320 * 128 * 2 - 1); }),
              AllOf(HasSubstr("does not fit in memory"), HasSubstr("doppler convert FOLDER DST")));
}

TEST(Checkpoint, ModulesAreNamedByNameGlobOrExpression) {
  const std::string tensor = "model.layers.3.mlp.gate.weight";
  for (const char* pattern : {"model.layers.3.mlp.gate", "model.layers.*.gate", "model.layers.3.mlp", "re:.*mlp.gate$",
                              "re:model\\.layers\\.[0-9]+\\.mlp"}) {
    EXPECT_TRUE(matches_module(pattern, tensor)) << pattern;
  }
  for (const char* pattern : {"model.layers.3.mlp.gat", "gate", "re:mlp.gate$", "re:.*weight$", "re:.*gate_proj"}) {
    EXPECT_FALSE(matches_module(pattern, tensor)) << pattern;
  }
}

}  // namespace
}  // namespace doppler
