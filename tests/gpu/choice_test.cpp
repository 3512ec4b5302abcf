// The functions that choose a kernel's variant, without a GPU.
#include <cmath>
#include <map>

#include "gpu/gpu_test.h"
#include "gpu/ops/elementwise.h"
#include "gpu/ops/experts.h"
#include "gpu/ops/matvec.h"

namespace doppler::gpu {
namespace {

std::map<std::string, double> constants(const Variant& variant) {
  return {variant.constants.begin(), variant.constants.end()};
}

TEST(ChooseNorm, UsesSubgroupsOnlyWhereThereAreSome) {
  Capabilities capabilities = minimal_capabilities();
  EXPECT_EQ(choose_norm(capabilities, {1, 1152}).name(), "reduce=plain threads=256");
  capabilities.subgroups = true;
  EXPECT_EQ(choose_norm(capabilities, {1, 1152}).name(), "reduce=subgroup threads=256");
  EXPECT_EQ(choose_norm(capabilities, {4, 256}).name(), "reduce=subgroup threads=64");
}

TEST(ChooseMatvec, StaysWithinTheSmallestDevicesLimitsForEveryShape) {
  const Capabilities capabilities = minimal_capabilities();
  for (uint64_t cols = 1; cols < 40000; cols = cols * 5 / 4 + 1) {
    for (uint64_t rows : {1, 2, 100, 1000, 1152, 6912, 20000, 262144}) {
      const Variant variant = choose_matvec(capabilities, {DType::kQ4_K, rows, cols});
      auto c = constants(variant);
      const double threads = c["lanes"] * c["groups"];
      EXPECT_GE(threads, 1) << variant.name();
      EXPECT_LE(threads, capabilities.limits.invocations) << variant.name();
      const double shared = 4 * (c["lanes"] + c["split"]) * c["groups"] * c["rows"];
      EXPECT_LE(shared, capabilities.limits.workgroup_bytes) << rows << "x" << cols << " " << variant.name();
      EXPECT_EQ(c["vectors"], cols % 4 == 0 ? 1 : 0);
    }
  }
}

TEST(ChooseMatvec, NamesTheWeightsType) {
  const Variant variant = choose_matvec(minimal_capabilities(), {DType::kQ6_K, 1152, 6912});
  EXPECT_EQ(variant.snippets.at(0).second, "q6_k");
  EXPECT_NE(variant.name().find("lanes=216"), std::string::npos) << variant.name();
}

TEST(ChooseMatvec, TakesIntegersForQuantisedWeightsUnlessExactnessIsAsked) {
  Capabilities capabilities = minimal_capabilities();
  auto is_int8 = [&](DType dtype, bool exact) {
    return choose_matvec(capabilities, {dtype, 1152, 1152, exact}).name().find("matvec_x=int8") != std::string::npos;
  };
  EXPECT_FALSE(is_int8(DType::kQ4_K, false));
  capabilities.int8_dot = true;
  EXPECT_TRUE(is_int8(DType::kQ4_K, false));
  EXPECT_FALSE(is_int8(DType::kQ4_K, true));
  EXPECT_FALSE(is_int8(DType::kBF16, false));
}

TEST(ChooseMatvec, AnUnknownTypeIsAnErrorNotADefault) {
  EXPECT_EQ(error_of([] {
              choose_matvec(minimal_capabilities(), {DType::kIQ2_S, 10, 256});
            }).code,
            ErrorCode::kUnsupported);
  EXPECT_EQ(error_of([] { choose_embed(minimal_capabilities(), DType::kQ3_K); }).code, ErrorCode::kUnsupported);
}

TEST(Compose, RefusesVariantsThatDoNotFitTheKernel) {
  const KernelSource& norm = []() -> const KernelSource& {
    static const SnippetChoice choices[] = {{"a", {"enable subgroups;\n", "\n\nfn a() {}\n", {}, "ops/lib/s.wgsl", 10}},
                                            {"b", {"", "fn b() {}\n", {}}}};
    static const Snippet snippets[] = {{"s", choices}};
    static const char* const overrides[] = {"threads"};
    static const KernelSource source = {
        "k", {"", "override threads: u32;\n", overrides, "ops/k.wgsl"}, snippets, {}, 0};
    return source;
  }();
  EXPECT_EQ(error_of([&] { compose(norm, {}); }).code, ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { compose(norm, {{{"s", "c"}}, {}}); }).code, ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { compose(norm, {{{"s", "a"}, {"t", "a"}}, {}}); }).code, ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { compose(norm, {{{"s", "a"}}, {{"thread", 1}}}); }).code, ErrorCode::kInternal);

  const ComposedSource composed = compose(norm, {{{"s", "a"}}, {{"threads", 1}}});
  EXPECT_EQ(composed.text, "enable subgroups;\n\n\nfn a() {}\noverride threads: u32;\n");
  EXPECT_EQ(composed.locate(4), "ops/lib/s.wgsl:12");
  EXPECT_EQ(composed.locate(5), "ops/k.wgsl:1");
}

// A large GPU: 32 lanes a subgroup, integer products.
Capabilities large_gpu() {
  Capabilities capabilities = minimal_capabilities();
  capabilities.subgroups = true;
  capabilities.subgroup_min = capabilities.subgroup_max = 32;
  capabilities.int8_dot = true;
  capabilities.limits.workgroup_bytes = 48 << 10;
  capabilities.limits.invocations = 1024;
  return capabilities;
}

TEST(ChooseExperts, KeepSixteenBitsOfXWhereThereAreIntegerProducts) {
  const ExpertsShape shape{DType::kMXFP4, 32, 4, 2880, 2880};
  ASSERT_TRUE(can_fuse_experts(large_gpu(), shape));
  const Variant up = choose_experts_up(large_gpu(), shape), down = choose_experts_down(large_gpu(), shape);
  EXPECT_NE(up.name().find("x=int16"), std::string::npos) << up.name();
  EXPECT_NE(down.name().find("x=stored16"), std::string::npos) << down.name();
  Capabilities without = large_gpu();
  without.int8_dot = false;
  EXPECT_NE(choose_experts_up(without, shape).name().find("x=float"), std::string::npos);
  EXPECT_NE(choose_experts_down(without, shape).name().find("x=stored_float"), std::string::npos);
  // Whole pieces of 32 are left for down, or floats.
  EXPECT_NE(choose_experts_up(large_gpu(), {DType::kMXFP4, 32, 4, 2880, 2884}).name().find("up_out=plain"),
            std::string::npos);
}

TEST(ChooseExperts, OneRoundOfWorkgroupsGoesThroughGateAndUp) {
  for (const uint64_t ffn : {32, 768, 2880, 14336}) {
    for (const uint32_t k : {1u, 4u, 8u}) {
      auto c = constants(choose_experts_up(large_gpu(), {DType::kMXFP4, 32, k, 2880, ffn}));
      const double rows = c["groups"] * c["rows"] * c["bands"];
      EXPECT_EQ(std::fmod(rows, 64), 0) << "results are left by the piece";
      EXPECT_LE(k * std::ceil(2 * static_cast<double>(ffn) / rows), 132) << ffn << " " << k;
    }
  }
}

TEST(ChooseExperts, MoreThanThereIsRoomForAreNotFused) {
  EXPECT_FALSE(can_fuse_experts(large_gpu(), {DType::kMXFP4, 512, 4, 2880, 2880}));
  EXPECT_FALSE(can_fuse_experts(large_gpu(), {DType::kMXFP4, 64, 33, 2880, 2880}));
  EXPECT_FALSE(can_fuse_experts(large_gpu(), {DType::kMXFP4, 32, 4, 2882, 2880}));
  EXPECT_FALSE(can_fuse_experts(minimal_capabilities(), {DType::kMXFP4, 32, 4, 8192, 2880})) << "x is too long";
}

TEST(ChooseExperts, APrefillRoundsXOnlyWhereItMay) {
  ExpertMatmulShape shape{DType::kMXFP4, 512, 5760, 2880, 32, 4};
  EXPECT_EQ(choose_expert_matmul(large_gpu(), shape).kernel, MatmulKernel::kInt8);
  shape.exact = true;
  EXPECT_EQ(choose_expert_matmul(large_gpu(), shape).kernel, MatmulKernel::kFloat);
}

}  // namespace
}  // namespace doppler::gpu
