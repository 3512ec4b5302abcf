// `doppler test`: every kernel on this machine's device against the truth, and a whole model against plain code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "cli/kernel_choice.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

struct CorrectnessArguments : KernelChoice {
  bool unchecked = false, verbose = false, perf = false;
};

void run_correctness(const CorrectnessArguments& arguments) {
  gpu::Device device({.adapter = arguments.device, .unchecked = arguments.unchecked, .plain = arguments.plain});
  Json results = Json::array();
  int passed = 0, failed = 0;
  double worst = 0;
  if (!arguments.json) fmt::print("{} ({})\n", device.info().name, device.info().type);
  for (const gpu::KernelCase& c : gpu::kernel_cases(device.capabilities())) {
    const std::string name = c.op + " " + c.name;
    if (c.measure || !arguments.takes(name)) continue;
    const gpu::CheckResult r = gpu::check_case(device, c);
    (r.pass ? passed : failed)++;
    worst = std::max(worst, r.ratio);
    if (arguments.json) {
      results.push_back({{"op", c.op},
                         {"case", c.name},
                         {"variant", r.variants},
                         {"pass", r.pass},
                         {"element", r.worst},
                         {"got", r.got},
                         {"expected", r.expected},
                         {"bound", r.bound},
                         {"errorOfBound", r.ratio}});
    } else if (!r.pass || arguments.verbose) {
      fmt::print("{}  {:<48} {:6.3f} of its bound at element {}: {:.9g}, expected {:.9g} ± {:.2g}  [{}]\n",
                 r.pass ? "pass" : "FAIL", name, r.ratio, r.worst, r.got, r.expected, r.bound, r.variants);
    }
  }
  if (passed + failed == 0) arguments.fail_without_cases();
  if (arguments.json) {
    fmt::print(
        "{}\n",
        Json{{"device", device.info().name}, {"passed", passed}, {"failed", failed}, {"cases", results}}.dump(1));
  } else {
    fmt::print("{} cases passed, {} failed; worst error {:.3f} of its bound\n", passed, failed, worst);
  }
  if (failed != 0) throw CheckFailed{};
  if (arguments.perf) print_kernel_speeds({static_cast<const KernelChoice&>(arguments), false});
}

Verb add_correctness(Verb test, const char* name) {
  auto arguments = std::make_shared<CorrectnessArguments>();
  Verb correctness = test.add_verb(name, "Every GPU kernel against the truth; doppler test kernels is the same");
  arguments->declare(correctness);
  correctness.add_flag("--plain", arguments->plain, "Without subgroups and other optional features");
  correctness.add_flag("--unchecked", arguments->unchecked, "Without bounds checks in kernels, as fast runs use them");
  correctness.add_flag("-v,--verbose", arguments->verbose, "Print the cases that pass, too");
  correctness.add_flag("--perf", arguments->perf, "And then how fast they are, as bench kernels says it");
  correctness.finish(arguments->json, "Example:\n  doppler test correctness --filter matvec -v",
                     [arguments] { run_correctness(*arguments); });
  return correctness;
}

}  // namespace

void add_test(Verb app) {
  Verb test = app.add_verb("test", "Check that this machine computes what it should");
  test.need_verb();
  add_correctness(test, "correctness");
  add_correctness(test, "kernels").hide();  // the same by another name
  add_test_inference(test);
}

}  // namespace doppler
