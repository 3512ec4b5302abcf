// Which kernel and tile a matrix product takes, without a GPU.
#include "gpu/gpu_test.h"
#include "gpu/ops/matmul.h"

namespace doppler::gpu {
namespace {

Capabilities large_gpu() {
  Capabilities c = minimal_capabilities();
  c.int8_dot = true;
  c.limits.workgroup_bytes = 48u << 10;
  c.limits.invocations = 1024;
  return c;
}

// As the current Dawn sees an NVIDIA GPU when experimental features are allowed.
Capabilities tensor_gpu() {
  Capabilities c = large_gpu();
  c.subgroups = c.f16 = c.subgroup_matrix = c.f16_matrices = true;
  c.subgroup_min = c.subgroup_max = c.subgroup_size = 32;
  return c;
}

bool holds_f16(const MatmulChoice& choice) { return choice.name().find("matmul_w=f16") != std::string::npos; }

uint64_t workgroups(const MatmulShape& shape, const MatmulChoice& choice) {
  return uint64_t{div_up(shape.rows, choice.tile_rows)} * div_up(shape.tokens, choice.tile_tokens) * choice.splits;
}

TEST(ChooseMatmul, TakesIntegersOnlyForQuantisedWeightsWhereTheDeviceHasThem) {
  const Capabilities large = large_gpu(), minimal = minimal_capabilities();
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
    EXPECT_EQ(choose_matmul(large, {dtype, 512, 1152, 6912}).kernel, MatmulKernel::kInt8);
    EXPECT_EQ(choose_matmul(large, {dtype, 512, 1152, 6912, true}).kernel, MatmulKernel::kFloat);
    EXPECT_EQ(choose_matmul(minimal, {dtype, 512, 1152, 6912}).kernel, MatmulKernel::kFloat);
  }
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(choose_matmul(large, {dtype, 512, 1152, 6912}).kernel, MatmulKernel::kFloat);
  }
}

TEST(ChooseMatmul, LikeABlockOfManyTokensMakesTheSumsOfThatBlock) {
  for (const Capabilities& c : {minimal_capabilities(), large_gpu(), tensor_gpu()}) {
    for (const auto& [rows, cols] : {std::pair{1152, 6912}, {6912, 1152}, {256, 1152}, {4096, 4096}}) {
      MatmulShape shape{DType::kQ4_K, 512, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), false, true};
      const MatmulChoice block = choose_matmul(c, shape);
      shape.like = 512;
      EXPECT_EQ(choose_matmul(c, shape).name(), block.name());
      for (const uint64_t tokens : {1, 2, 31, 64, 511}) {
        shape.tokens = tokens;
        const MatmulChoice fewer = choose_matmul(c, shape);
        EXPECT_EQ(fewer.kernel, block.kernel) << tokens;
        EXPECT_EQ(fewer.splits, block.splits) << tokens;
      }
    }
  }
}

TEST(ChooseMatmul, StaysWithinEveryDevicesLimitsForEveryShape) {
  for (bool integers : {false, true}) {
    for (uint32_t bytes : {16u << 10, 32u << 10, 48u << 10}) {
      Capabilities capabilities = minimal_capabilities();
      capabilities.int8_dot = integers;
      capabilities.limits.workgroup_bytes = bytes;
      for (uint64_t tokens : {1, 2, 9, 33, 128, 512, 4096}) {
        for (uint64_t rows : {1, 100, 1152, 6912, 262144}) {
          for (uint64_t cols : {1, 96, 1152, 6912}) {
            const MatmulChoice choice = choose_matmul(capabilities, {DType::kQ4_K, tokens, rows, cols, false, true});
            const uint64_t lines = choice.tile_rows + choice.tile_tokens;
            double buffers = 1, threads = 1;
            for (const auto& [name, value] : choice.variant.constants) {
              if (name == "buffers") buffers = value;
              if (name == "row_lanes" || name == "token_lanes") threads *= value;
            }
            EXPECT_LE(threads, 256) << choice.name();
            EXPECT_LE(static_cast<double>(lines) * (integers ? 80 * buffers : 128), bytes) << choice.name();
            EXPECT_LE(choice.splits, std::max<uint64_t>(1, cols / 512)) << choice.name();
          }
        }
      }
    }
  }
}

TEST(ChooseMatmul, KeepsALargeGpuBusyWithTheShapesOfASmallModel) {
  const Capabilities capabilities = large_gpu();
  for (uint64_t tokens : {512, 2048}) {
    for (const MatmulShape& shape : {MatmulShape{DType::kQ4_K, tokens, 6912, 1152, false, true},
                                     {DType::kQ4_K, tokens, 1152, 6912, false, true},
                                     {DType::kQ4_K, tokens, 1536, 1152, false, true},
                                     {DType::kQ6_K, tokens, 1152, 1024, false, true}}) {
      const MatmulChoice choice = choose_matmul(capabilities, shape);
      EXPECT_GE(workgroups(shape, choice), 264u) << choice.name();
    }
  }
}

TEST(ChooseMatmul, SplitsColumnsOnlyWhereScratchIsAtHand) {
  const Capabilities capabilities = large_gpu();
  EXPECT_EQ(choose_matmul(capabilities, {DType::kQ4_K, 32, 640, 6912, false, false}).splits, 1u);
  EXPECT_GT(choose_matmul(capabilities, {DType::kQ4_K, 32, 640, 6912, false, true}).splits, 1u);
  // Less than a few hundred columns a part would not pay.
  EXPECT_EQ(choose_matmul(capabilities, {DType::kQ4_K, 32, 640, 640, false, true}).splits, 1u);
}

TEST(ChooseMatmul, FewTokensTakeANarrowTile) {
  const Capabilities capabilities = large_gpu();
  EXPECT_GT(choose_matmul(capabilities, {DType::kQ4_K, 512, 262144, 1152}).tile_tokens, 32u);
  EXPECT_LE(choose_matmul(capabilities, {DType::kQ4_K, 16, 262144, 1152}).tile_tokens, 32u);
}

TEST(ChooseMatmul, WhatCannotBeIsAnErrorNotADefault) {
  EXPECT_EQ(error_of([] { choose_matmul(large_gpu(), {DType::kIQ2_S, 10, 256, 256}); }).code, ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([] { choose_matmul(large_gpu(), {DType::kQ4_K, 0, 256, 256}); }).code, ErrorCode::kInternal);
}

TEST(ChooseMatmul, TheChoiceIsAmongTheCandidates) {
  for (const MatmulShape& shape :
       {MatmulShape{DType::kQ4_K, 512, 6912, 1152}, {DType::kQ6_K, 512, 1152, 6912}, {DType::kF16, 512, 1152, 6912}}) {
    for (const Capabilities& capabilities : {large_gpu(), tensor_gpu()}) {
      const std::string chosen = choose_matmul(capabilities, shape).name();
      bool found = false;
      for (const MatmulChoice& choice : matmul_candidates(capabilities, shape)) found |= choice.name() == chosen;
      EXPECT_TRUE(found) << chosen;
    }
  }
}

TEST(ChooseMatmul, TakesMatricesWhereTheDeviceHasThemAndF16IsPreciseEnough) {
  const Capabilities tensor = tensor_gpu();
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K}) {
    EXPECT_EQ(choose_matmul(tensor, {dtype, 512, 1152, 6912}).kernel, MatmulKernel::kMatrix);
    EXPECT_EQ(choose_matmul(tensor, {dtype, 512, 1152, 6912, true}).kernel, MatmulKernel::kFloat);
    EXPECT_EQ(choose_matmul(tensor, {dtype, 2, 1152, 6912}).kernel, MatmulKernel::kInt8);
  }
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kMXFP4}) {
    for (bool exact : {false, true}) {
      EXPECT_NE(choose_matmul(tensor, {dtype, 512, 1152, 6912, exact}).kernel, MatmulKernel::kMatrix);
    }
  }
}

TEST(ChooseMatmul, TakesMatricesOnlyWithAllThatTheKernelCountsOn) {
  const MatmulShape shape = {DType::kQ4_K, 512, 1152, 6912};
  const auto without = [&](void (*take)(Capabilities&)) {
    Capabilities c = tensor_gpu();
    take(c);
    return choose_matmul(c, shape).kernel;
  };
  EXPECT_EQ(without([](Capabilities&) {}), MatmulKernel::kMatrix);
  EXPECT_EQ(without([](Capabilities& c) { c.f16 = false; }), MatmulKernel::kInt8);
  EXPECT_EQ(without([](Capabilities& c) { c.f16_matrices = false; }), MatmulKernel::kInt8);
  EXPECT_EQ(without([](Capabilities& c) { c.subgroup_size = 0; }), MatmulKernel::kInt8);
  EXPECT_EQ(without([](Capabilities& c) { c.subgroup_min = 16; }), MatmulKernel::kInt8);
  EXPECT_EQ(without([](Capabilities& c) { c.subgroup_max = 64; }), MatmulKernel::kInt8);
  EXPECT_EQ(without([](Capabilities& c) { c.limits.workgroup_bytes = 16u << 10; }), MatmulKernel::kInt8);
  MatmulShape experts = shape;
  experts.gathered = true;
  EXPECT_EQ(choose_matmul(tensor_gpu(), experts).kernel, MatmulKernel::kInt8);
}

TEST(ChooseMatmul, MatricesStayWithinTheDevicesLimits) {
  for (uint32_t bytes : {32u << 10, 48u << 10}) {
    for (uint32_t invocations : {128u, 256u}) {
      Capabilities c = tensor_gpu();
      c.limits.workgroup_bytes = bytes;
      c.limits.invocations = invocations;
      for (uint64_t tokens : {64, 512, 4096}) {
        const MatmulChoice choice = choose_matmul(c, {DType::kQ4_K, tokens, 6912, 1152, false, true});
        ASSERT_EQ(choice.kernel, MatmulKernel::kMatrix);
        EXPECT_LE((choice.tile_rows + choice.tile_tokens) * 144, bytes) << choice.name();
        EXPECT_LE(choice.tile_rows * 2, invocations) << choice.name();
      }
    }
  }
}

TEST(ChooseMatmul, MatricesOfFewTilesAreSplitOrTakeSmallerTiles) {
  const Capabilities c = tensor_gpu();
  EXPECT_EQ(choose_matmul(c, {DType::kQ4_K, 2048, 6912, 1152, false, true}).tile_rows, 128u);
  EXPECT_EQ(choose_matmul(c, {DType::kQ4_K, 128, 6912, 1152, false, true}).tile_rows, 64u);
  EXPECT_EQ(choose_matmul(c, {DType::kQ4_K, 512, 1152, 6912, false, false}).splits, 1u);
  EXPECT_GT(choose_matmul(c, {DType::kQ4_K, 512, 1152, 6912, false, true}).splits, 1u);
}

TEST(ChooseMatmul, HoldsWeightsAsF16WhereNothingThatCountsIsLost) {
  Capabilities c = minimal_capabilities();
  c.int8_emulated = true;
  EXPECT_FALSE(holds_f16(choose_matmul(c, {DType::kF16, 512, 1152, 6912, true})));
  c.f16 = true;
  EXPECT_TRUE(holds_f16(choose_matmul(c, {DType::kF16, 512, 1152, 6912, true})));
  EXPECT_TRUE(holds_f16(choose_matmul(c, {DType::kQ4_K, 512, 1152, 6912, false})));
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kBF16, DType::kF32, DType::kMXFP4}) {
    EXPECT_FALSE(holds_f16(choose_matmul(c, {dtype, 512, 1152, 6912, true}))) << name_of(dtype);
  }
  c.int8_emulated = false;  // nothing is gained there
  EXPECT_FALSE(holds_f16(choose_matmul(c, {DType::kF16, 512, 1152, 6912, true})));
}

TEST(ChooseMatmul, PrefersF16ToIntegerProductsThatAreEmulated) {
  Capabilities c = large_gpu();
  c.int8_emulated = true;
  const MatmulShape shape = {DType::kQ4_K, 512, 1152, 6912};
  EXPECT_EQ(choose_matmul(c, shape).kernel, MatmulKernel::kInt8);
  c.f16 = true;
  EXPECT_EQ(choose_matmul(c, shape).kernel, MatmulKernel::kFloat);
  EXPECT_TRUE(holds_f16(choose_matmul(c, shape)));
}

TEST(ChooseMatmul, CandidatesHoldEveryKernelThatComputesTheShape) {
  const MatmulShape shape = {DType::kQ4_K, 512, 1152, 6912, false, true};
  int matrices = 0, integers = 0, halves = 0;
  for (const MatmulChoice& choice : matmul_candidates(tensor_gpu(), shape)) {
    matrices += choice.kernel == MatmulKernel::kMatrix;
    integers += choice.kernel == MatmulKernel::kInt8;
    halves += holds_f16(choice);
  }
  EXPECT_EQ(matrices, 6);  // two tiles in 1, 2 and 4 parts
  EXPECT_GT(integers, 0);
  EXPECT_GT(halves, 0);
}

TEST(ChooseMatmul, AWishIsTakenWhateverTheTokensAre) {
  for (const char* wish : {"matrix", "matrix.t64.s2", "int8", "int8.t64", "f16.s4", "f32.32x32"}) {
    Capabilities c = tensor_gpu();
    MatmulShape shape = {DType::kQ4_K, 512, 1152, 6912, false, true};
    bool there = false;
    for (const MatmulChoice& choice : matmul_variants(c, shape)) there |= names_variant(wish, choice.words());
    EXPECT_TRUE(there) << wish;
    c.kernels = {{"matmul", wish}};
    const MatmulChoice block = choose_matmul(c, shape);
    EXPECT_TRUE(names_variant(wish, block.words())) << wish << " " << block.words();
    Weight weight;
    weight.parts.emplace_back().rows = 1152;
    shape.like = 512;
    const uint64_t bytes = max_matmul_scratch_bytes(c, shape, weight);
    for (const uint64_t tokens : {1, 7, 31, 64, 511}) {
      shape.tokens = tokens;
      EXPECT_EQ(choose_matmul(c, shape).name(), block.name()) << tokens;
      EXPECT_LE(matmul_scratch_bytes(block, weight, tokens), bytes);
    }
  }
}

// A product that cannot be computed so keeps its own kernel; one that would be, too, keeps its tile.
TEST(ChooseMatmul, AWishThatTheShapeCannotHaveChangesNothing) {
  for (const DType dtype : {DType::kBF16, DType::kQ4_K}) {
    const MatmulShape shape = {dtype, 512, 1152, 6912, dtype == DType::kBF16, true};
    const std::string usual = choose_matmul(large_gpu(), shape).name();
    for (const char* wish : {"matrix", "int9", ""}) {
      Capabilities c = large_gpu();
      c.kernels = {{"matmul", wish}};
      EXPECT_EQ(choose_matmul(c, shape).name(), usual) << wish;
    }
    Capabilities c = large_gpu();
    c.kernels = {{"matmul", dtype == DType::kBF16 ? "f32" : "int8"}};
    EXPECT_EQ(choose_matmul(c, shape).name(), usual);
  }
}

TEST(ChooseMatmul, ScratchOfABlockIsEnoughForEveryShorterOne) {
  for (const Capabilities& capabilities : {minimal_capabilities(), large_gpu(), tensor_gpu()}) {
    for (const auto& [rows, cols] :
         {std::pair<uint64_t, uint64_t>{1152, 6912}, {256, 1152}, {6912, 1152}, {640, 2048}}) {
      MatmulShape shape = {DType::kQ4_K, 700, rows, cols, false, true};
      Weight weight;
      weight.parts.emplace_back().rows = static_cast<int64_t>(rows);
      const uint64_t bytes = max_matmul_scratch_bytes(capabilities, shape, weight);
      for (shape.tokens = 2; shape.tokens <= 700; ++shape.tokens) {
        const MatmulChoice choice = choose_matmul(capabilities, shape);
        ASSERT_LE(matmul_scratch_bytes(choice, weight, shape.tokens), bytes) << shape.tokens << " " << choice.name();
      }
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
