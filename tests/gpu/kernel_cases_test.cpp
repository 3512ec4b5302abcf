// Every kernel against the truth, over shapes, remainders and types: once as this device likes it, once without any
// optional feature.
#include "gpu/cases/kernel_cases.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <map>

#include "base/files.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace fs = std::filesystem;
namespace {

// Every `step`-th case of an op.
void check_all(Device& device, const std::string& op, int step) {
  double worst = 0;
  std::string worst_name;
  int count = 0, number = 0;
  for (const KernelCase& c : kernel_cases(device.capabilities())) {
    if (c.op != op || c.measure || number++ % step != 0) continue;
    ++count;
    const CheckResult result = check_case(device, c);
    EXPECT_TRUE(result.pass) << c.op << " " << c.name << " [" << result.variants << "]: element " << result.worst
                             << " is " << result.got << ", expected " << result.expected << " within " << result.bound;
    if (result.ratio > worst) {
      worst = result.ratio;
      worst_name = c.name;
    }
  }
  EXPECT_GT(count, 0);
  std::cout << "  " << op << ": " << count << " cases, worst error " << worst << " of its bound (" << worst_name
            << ")\n";
}

class KernelCases : public testing::TestWithParam<const char*> {};

TEST_P(KernelCases, AgreeWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  check_all(device, GetParam(), 1);
}

TEST_P(KernelCases, AgreeWithTheTruthWithoutOptionalFeatures) {
  DOPPLER_NEED_DEVICE(device);
  static Device plain({.plain = true});
  EXPECT_FALSE(plain.capabilities().subgroups);
  // All cases of the ops whose choice looks at the features; a sample of the others.
  const std::string op = GetParam();
  check_all(plain, op, op == "norm" ? 1 : op == "experts" ? 4 : 9);
}

INSTANTIATE_TEST_SUITE_P(Ops, KernelCases,
                         testing::Values("add", "copy", "softcap", "scale", "glu", "norm", "rope", "embed", "matvec",
                                         "project_norm", "project_batch", "project_merge", "batch_merge", "route",
                                         "combine", "experts", "expert_matmul", "part", "short_conv", "delta_net",
                                         "lora"),
                         [](const auto& op) { return std::string(op.param); });

// The names behind `mark` in the files of a folder and those below it: [[:alnum:]_]+.
std::map<std::string, std::string> names_behind(const std::string& mark, const fs::path& folder) {
  std::map<std::string, std::string> found;  // name to its file's name without the ending
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string text = read_text_file(entry.path());
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
      size_t end = at + mark.size();
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
      if (end > at + mark.size()) found[text.substr(at + mark.size(), end - at - mark.size())] = entry.path().stem();
    }
  }
  return found;
}

TEST(KernelCaseList, EveryRecordedOperationIsCalledByATest) {
  const fs::path source = DOPPLER_SOURCE_DIR;
  const auto recorded = names_behind("\nvoid record_", source / "src/gpu/ops");
  const auto called = names_behind("record_", source / "tests/gpu");
  EXPECT_GE(recorded.size(), 20u);  // they are found at all
  for (const auto& [operation, file] : recorded) {
    EXPECT_TRUE(called.contains(operation))
        << "record_" << operation << " in src/gpu/ops/" << file << ".h has no case in tests/gpu/cases";
  }
}

std::string camel(const std::string& name) {  // argmax_pick is wgsl::ArgmaxPick
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '_') out += i == 0 || name[i - 1] == '_' ? static_cast<char>(std::toupper(name[i])) : name[i];
  }
  return out;
}

TEST(KernelCaseList, NoKernelIsDead) {
  const fs::path gpu = fs::path(DOPPLER_SOURCE_DIR) / "src/gpu";
  auto kernels = names_behind("\n// kernel: ", gpu);
  for (const char* folder : {"ops", "webgpu"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(gpu / folder)) {
      const std::string stem = entry.path().stem();
      const bool whole = std::none_of(kernels.begin(), kernels.end(), [&](const auto& k) { return k.second == stem; });
      if (entry.path().extension() == ".wgsl" && whole) kernels[stem] = stem;  // a file that is one kernel
    }
  }
  EXPECT_GE(kernels.size(), 30u);
  const auto dispatched = names_behind("dispatch<wgsl::", gpu);
  for (const auto& [kernel, file] : kernels) {
    EXPECT_TRUE(dispatched.contains(camel(kernel))) << kernel << " in " << file << ".wgsl is dispatched nowhere";
  }
}

}  // namespace
}  // namespace doppler::gpu
