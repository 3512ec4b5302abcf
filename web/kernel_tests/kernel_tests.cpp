// `doppler test correctness` and `doppler bench kernels` for WebGPU that only JavaScript can reach, such as the current
// Dawn under Node: the engine's module with one more export. web/tools/test_kernels.mjs calls it.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/json.h"
#include "gpu/cases/kernel_cases.h"
#include "gpu/cases/matmul_cases.h"
#include "host.h"

namespace {

using namespace doppler;
using namespace doppler::gpu;

void say(const std::string& line) { host_piece(line.data(), static_cast<uint32_t>(line.size()), 0); }

struct Tally {
  int passed = 0, failed = 0;
  double worst = 0;
};

void check(Device& device, const KernelCase& c, Tally& tally) {
  const CheckResult r = check_case(device, c);
  (r.pass ? tally.passed : tally.failed)++;
  tally.worst = std::max(tally.worst, r.ratio);
  say(fmt::format("{}  {:<48} {:6.3f} of its bound at element {}: {:.9g}, expected {:.9g} ± {:.2g}  [{}]",
                  r.pass ? "pass" : "FAIL", c.op + " " + c.name, r.ratio, r.worst, r.got, r.expected, r.bound,
                  r.variants));
}

void measure(Device& device, const KernelCase& c) {
  const MeasureResult m = measure_case(device, c);
  say(fmt::format("{:<48} {:8.1f} us {:9.1f} GB/s {:9.1f} GFLOP/s  {} dispatches [{}]", c.op + " " + c.name,
                  m.ns * 1e-3 * static_cast<double>(m.dispatches), m.gb_per_s(), m.gflop_per_s(), m.dispatches,
                  m.variants));
}

}  // namespace

// request: JSON {filter, plain, bench, tiles}. Returns the number of cases that failed, or -1 where none matches.
extern "C" __attribute__((export_name("test_kernels"))) int test_kernels(const char* request, size_t length) {
  const Json json = parse_json({request, length}, "request");
  const std::string filter = string_or(json, "filter", "", "request");
  const bool bench = bool_or(json, "bench", false, "request"), tiles = bool_or(json, "tiles", false, "request");
  Device device({.plain = bool_or(json, "plain", false, "request")});
  const Capabilities& c = device.capabilities();
  say(fmt::format("{}: subgroups {}, f16 {}, f16 matrices {}, int8 products {}", device.info().name, c.subgroup_size,
                  c.f16, c.f16_matrices, c.int8_dot));
  std::vector<KernelCase> cases = tiles ? (bench ? matmul_tuning_cases(c) : matmul_tile_cases(c)) : kernel_cases(c);
  std::erase_if(cases, [&](const KernelCase& one) {
    return one.measure != bench || (one.op + " " + one.name).find(filter) == std::string::npos;
  });
  if (cases.empty()) return -1;
  Tally tally;
  for (const KernelCase& one : cases) {
    if (bench) {
      measure(device, one);
    } else {
      check(device, one, tally);
    }
  }
  if (!bench) {
    say(fmt::format("{} cases passed, {} failed; worst error {:.3f} of its bound", tally.passed, tally.failed,
                    tally.worst));
  }
  return tally.failed;
}
