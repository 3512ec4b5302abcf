// `doppler bench kernels`: GPU time of single kernels, beside the bandwidth of a plain copy.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "cli/verbs.h"
#include "gpu/cases/kernel_cases.h"

namespace doppler {
namespace {

struct KernelsArguments {
  std::string filter;
  int device = -1;
  bool checked = false, plain = false, json = false;
};

void run_kernels(const KernelsArguments& arguments) {
  gpu::Device device({.adapter = arguments.device, .unchecked = !arguments.checked, .plain = arguments.plain});
  const double peak = gpu::measure_copy_bandwidth(device);
  Json results = Json::array();
  if (!arguments.json) {
    fmt::print("{}; a copy moves {:.0f} GB/s\n", device.info().name, peak);
    fmt::print("{:<32} {:>10} {:>9} {:>7} {:>10}  {}\n", "kernel", "time", "GB/s", "of copy", "GFLOP/s", "variant");
  }
  for (const gpu::KernelCase& c : gpu::kernel_cases(device.capabilities())) {
    const std::string name = c.op + " " + c.name;
    if (!c.measure || name.find(arguments.filter) == std::string::npos) continue;
    const gpu::MeasureResult r = gpu::measure_case(device, c);
    results.push_back({{"op", c.op},
                       {"case", c.name},
                       {"variant", r.variants},
                       {"microseconds", r.ns / 1e3},
                       {"gbPerSecond", r.gb_per_s()},
                       {"ofCopyBandwidth", r.gb_per_s() / peak},
                       {"gflopPerSecond", r.gflop_per_s()}});
    if (arguments.json) continue;
    fmt::print("{:<32} {:>7.1f} us {:>9.1f} {:>6.1f}% {:>10.1f}  {}\n", name, r.ns / 1e3, r.gb_per_s(),
               100 * r.gb_per_s() / peak, r.gflop_per_s(), r.variants);
    std::fflush(stdout);
  }
  if (results.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "no case matches",
          .where = "--filter",
          .got = arguments.filter,
          .todo = "leave --filter out to see all cases"});
  }
  if (arguments.json) {
    fmt::print("{}\n", Json{{"device", device.info().name}, {"copyGbPerSecond", peak}, {"kernels", results}}.dump(1));
  }
}

}  // namespace

void add_bench_kernels(Verb bench) {
  auto arguments = std::make_shared<KernelsArguments>();
  Verb kernels = bench.add_verb("kernels", "GPU kernels one by one, beside the device's copy bandwidth");
  kernels.add_option("--filter", arguments->filter, "Only cases whose name holds this text, such as q4_k");
  kernels.add_option("--device", arguments->device, "Which GPU, as `doppler devices` numbers them");
  kernels.add_flag("--checked", arguments->checked, "With bounds checks in kernels");
  kernels.add_flag("--plain", arguments->plain, "Without subgroups and other optional features");
  kernels.add_flag("--json", arguments->json, "Print one JSON object");
  kernels.footer("Example:\n  doppler bench kernels --filter matvec");
  kernels.callback([arguments] { run_kernels(*arguments); });
}

}  // namespace doppler
