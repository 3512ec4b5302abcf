// Kernels chosen by hand: how the words are read, and what is refused.
#include "model/kernel_wishes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace doppler {
namespace {

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST(KernelWishes, AreKindsWithTheWordsOfAVariant) {
  const KernelWishes wishes = parse_kernel_wishes("matmul=int8.t64,attention=plain");
  EXPECT_EQ(wishes, (KernelWishes{{"matmul", "int8.t64"}, {"attention", "plain"}}));
  EXPECT_TRUE(parse_kernel_wishes("").empty());
  for (const char* text : {"matmul", "matmul=", "=int8", "matmul=int8,", "matmul=int8,matmul=f32"}) {
    EXPECT_NE(message_of([&] { parse_kernel_wishes(text); }).find(text), std::string::npos) << text;
  }
}

TEST(KernelWishes, NameAVariantByWholeWordsInAnyOrder) {
  EXPECT_TRUE(names_variant("int8.t64", "int8.128x64.t64.s1"));
  EXPECT_TRUE(names_variant("s1.int8", "int8.128x64.t64.s1"));
  EXPECT_FALSE(names_variant("int", "int8.128x64.t64.s1"));
  EXPECT_FALSE(names_variant("int8.s2", "int8.128x64.t64.s1"));
  EXPECT_FALSE(names_variant("plain", ""));
}

TEST(KernelWishes, AreRefusedByNameWithTheListOfWhatThereIs) {
  const std::vector<KernelKind> kinds{{"matmul", {"int8.t64", "f32.t32"}}, {"attention", {"plain"}}};
  const auto check = [&](const std::string& text) {
    return message_of([&] { check_kernel_wishes(parse_kernel_wishes(text), kinds, "webgpu"); });
  };
  EXPECT_EQ(check("matmul=int8,attention=plain"), "");
  for (const char* word : {"matmul", "int9", "int8.t64, f32.t32"}) {
    EXPECT_NE(check("matmul=int9").find(word), std::string::npos) << check("matmul=int9");
  }
  for (const char* word : {"webgpu", "matmul, attention", "matmull"}) {
    EXPECT_NE(check("matmull=int8").find(word), std::string::npos) << check("matmull=int8");
  }
  EXPECT_NE(message_of([&] { check_kernel_wishes({{"matmul", "x"}}, {}, "ref"); }).find("ref"), std::string::npos);
}

}  // namespace
}  // namespace doppler
