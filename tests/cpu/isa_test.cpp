#include "cpu/isa.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace doppler::cpu {
namespace {

TEST(Isa, PortableIsAlwaysThereAndComesFirst) {
  const auto all = available_kernels();
  ASSERT_FALSE(all.empty());
  EXPECT_STREQ(all.front()->name, "portable");
}

TEST(Isa, NamesChoose) {
  for (const Kernels* kernels : available_kernels()) EXPECT_EQ(&choose_kernels(kernels->name), kernels);
}

// What remains where memory is too short for a copy of the weights.
TEST(Isa, SomeKernelsReadWeightsWhereTheyLie) {
  for (const Format& format : unpacked_kernels().formats) {
    EXPECT_EQ(format.packing, nullptr);
    EXPECT_NE(format.dot, nullptr);
  }
}

TEST(Isa, FunctionsOfAKindComeFromTheSetThatIsWishedFor) {
  for (const Kernels* other : available_kernels()) {
    const Kernels mixed = mixed_kernels(kPortableKernels, {{"attention", other->name}, {"glu", other->name}});
    EXPECT_EQ(mixed.attend, other->attend);
    EXPECT_EQ(mixed.merge, other->merge);
    EXPECT_EQ(mixed.glu, other->glu);
    EXPECT_EQ(mixed.norm, kPortableKernels.norm);
    EXPECT_EQ(mixed.quantize, kPortableKernels.quantize);
    const Kernels products = mixed_kernels(kPortableKernels, {{"matmul", other->name}});
    EXPECT_EQ(products.formats[kFormatQ4_K].multiply, other->formats[kFormatQ4_K].multiply);
    EXPECT_EQ(products.attend, kPortableKernels.attend);
    const Kernels all = mixed_kernels(kPortableKernels, {{"all", other->name}, {"norm", "portable"}});
    EXPECT_EQ(all.attend, other->attend);
    EXPECT_EQ(all.norm, kPortableKernels.norm);
  }
}

TEST(Isa, UnknownNameIsAUsageErrorThatListsTheKnown) {
  try {
    choose_kernels("sse9");
    FAIL() << "accepted";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.code, ErrorCode::kUsage);
    EXPECT_NE(std::string(failure.what()).find("avx512"), std::string::npos);
    EXPECT_NE(std::string(failure.what()).find("sse9"), std::string::npos);
  }
}

TEST(Isa, TheEnvironmentForcesOne) {
  const char* before = std::getenv("DOPPLER_CPU");
  const std::string kept = before ? before : "";
  setenv("DOPPLER_CPU", "portable", 1);
  EXPECT_STREQ(choose_kernels().name, "portable");
  setenv("DOPPLER_CPU", "nonsense", 1);
  EXPECT_THROW(choose_kernels(), Failure);
  unsetenv("DOPPLER_CPU");
  EXPECT_EQ(&choose_kernels(), available_kernels().back());
  if (before) setenv("DOPPLER_CPU", kept.c_str(), 1);
}

}  // namespace
}  // namespace doppler::cpu
