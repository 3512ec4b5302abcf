// The GPU's kernels against the truth, from the list that `doppler test correctness` has. Some seconds long: a case of
// every operation and type first, then the others while there is time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "cli/doctor.h"
#include "gpu/cases/kernel_cases.h"

namespace doppler::doctor {
namespace {

constexpr double kSeconds = 10;

// The operation and the first word of the name, which is the type of the weights where there are any.
std::string kind_of(const gpu::KernelCase& c) { return c.op + " " + c.name.substr(0, c.name.find(' ')); }

// Round by round one case of each kind, so that stopping early leaves no kind out.
std::vector<const gpu::KernelCase*> in_rounds(const std::vector<gpu::KernelCase>& cases, size_t* kinds) {
  std::map<std::string, int> seen;
  std::vector<std::pair<int, const gpu::KernelCase*>> order;
  for (const gpu::KernelCase& c : cases) {
    if (!c.measure) order.emplace_back(seen[kind_of(c)]++, &c);
  }
  *kinds = seen.size();
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const gpu::KernelCase*> out;
  for (const auto& [round, c] : order) out.push_back(c);
  return out;
}

}  // namespace

void examine_gpu_kernels(const Options& options, Examination& e) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  gpu::Device device({.adapter = e.device, .unchecked = true});
  e.adapters[static_cast<size_t>(e.device)].capabilities =
      device.capabilities();  // with what only an open device tells
  const std::vector<gpu::KernelCase> cases = gpu::kernel_cases(device.capabilities());
  size_t kinds = 0;
  const std::vector<const gpu::KernelCase*> order = in_rounds(cases, &kinds);
  SelfTest test{.what = fmt::format("GPU kernels, {}", device.info().name), .all = static_cast<int>(order.size())};
  for (const gpu::KernelCase* c : order) {
    if (!options.full && static_cast<size_t>(test.checks) >= kinds && seconds() > kSeconds) break;
    const gpu::CheckResult r = gpu::check_case(device, *c);
    ++test.checks;
    if (r.pass) {
      test.worst = std::max(test.worst, r.ratio);
    } else if (++test.failed; test.failures.size() < kFailuresKept) {
      test.failures.push_back(fmt::format("{} {} [{}]: element {} is {:.6g}, expected {:.6g} ± {:.2g}", c->op, c->name,
                                          r.variants, r.worst, r.got, r.expected, r.bound));
    }
  }
  test.seconds = seconds();
  e.tests.push_back(test);
}

}  // namespace doppler::doctor
