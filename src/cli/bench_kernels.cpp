// `doppler bench kernels`: GPU time of single kernels, beside the bandwidth of a plain copy.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>

#include "base/files.h"
#include "base/json.h"
#include "cli/kernel_choice.h"
#include "cli/kernel_page.h"
#include "cli/verbs.h"

namespace doppler {
bool matches_filter(const std::string& name, const std::string& filter) {
  const auto plain = [](const std::string& text) {
    std::string letters;
    for (const char c : text) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) letters += static_cast<char>(std::tolower(c));
    }
    return letters;
  };
  return plain(name).find(plain(filter)) != std::string::npos;
}

void print_kernel_speeds(const KernelSpeeds& arguments) {
  gpu::Device device({.adapter = arguments.device, .unchecked = !arguments.checked, .plain = arguments.plain});
  const double peak = gpu::measure_copy_bandwidth(device);
  Json results = Json::array();
  if (!arguments.json) {
    fmt::print("{}; a copy moves {:.0f} GB/s\n", device.info().name, peak);
    fmt::print("{:<32} {:>10} {:>9} {:>7} {:>10}  {}\n", "kernel", "time", "GB/s", "of copy", "GFLOP/s", "variant");
  }
  for (const gpu::KernelCase& c : gpu::kernel_cases(device.capabilities())) {
    const std::string name = c.op + " " + c.name;
    if (!c.measure || !arguments.takes(name)) continue;
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
  if (results.empty()) arguments.fail_without_cases();
  const Json all{{"device", device.info().name}, {"copyGbPerSecond", peak}, {"kernels", results}};
  if (!arguments.html.empty()) write_file_whole(arguments.html, kernel_page(all));
  if (arguments.json) fmt::print("{}\n", all.dump(1));
}

void add_bench_kernels(Verb bench) {
  auto arguments = std::make_shared<KernelSpeeds>();
  Verb kernels = bench.add_verb("kernels", "GPU kernels one by one, beside the device's copy bandwidth");
  arguments->declare(kernels);
  kernels.add_flag("--checked", arguments->checked, "With bounds checks in kernels");
  kernels.add_flag("--plain", arguments->plain, "Without subgroups and other optional features");
  kernels.add_option("--html", arguments->html, "Write one page with charts and tables to this file");
  kernels.finish(arguments->json, "Example:\n  doppler bench kernels --filter matvec",
                 [arguments] { print_kernel_speeds(*arguments); });
}

}  // namespace doppler
