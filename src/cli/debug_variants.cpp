#include "cli/debug_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace doppler {
namespace {

void print_verdict(const VariantVerdict& v) {
  const std::string name = v.kind.empty() ? "chosen by itself" : fmt::format("{}={}", v.kind, v.variant);
  fmt::print("{} {:<52}{:>8}{:>12.2e}  {}\n", v.first_bad.empty() ? " " : "✗", name, v.stages, v.worst,
             v.first_bad.empty() ? "–" : v.first_bad);
  std::fflush(stdout);
}

Json verdict_json(const VariantVerdict& v) {
  const auto text = [](const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); };
  return {{"kind", text(v.kind)},
          {"variant", text(v.variant)},
          {"stages", v.stages},
          {"worst_error", std::isfinite(v.worst) ? Json(v.worst) : Json(nullptr)},
          {"first_bad", text(v.first_bad)},
          {"kernel", text(v.kernel)},
          {"cause", text(v.cause)}};
}

}  // namespace

bool debug_variants(const LoadedModel& model, const BackendChoice& backend, const ExecutorOptions& options,
                    std::span<const int32_t> prompt, double bound, bool verify, bool json) {
  if (prompt.size() < 2) {
    fail({.code = ErrorCode::kUsage,
          .what = "the prompt is too short to run a part of it as decode does",
          .where = "--compare variants",
          .expected = "2 tokens at least",
          .got = std::to_string(prompt.size())});
  }
  ExecutorOptions each = options;
  each.kernels.clear();
  const auto plain = make_executor(model, "ref", each, verify);
  const Stages reference = capture_run(*plain, model.plan, prompt, {});
  Bounds bounds = bounds_for(model.weights, true);
  if (bound > 0) bounds = {bound, bound, std::max(0.5, 10 * bound)};
  const auto make = [&](const KernelWishes& kernels) {
    each.kernels = kernels;
    return make_executor(model, backend.name, each, false);
  };
  if (!json) fmt::print("{:<54}{:>8}{:>12}  {}\n", "variant", "stages", "worst error", "first out of bounds");
  const std::vector<VariantVerdict> verdicts =
      try_variants(make, options.kernels, reference, {model.config, model.plan, model.weights, options.context}, bounds,
                   json ? std::function<void(const VariantVerdict&)>() : print_verdict);
  if (json) {
    Json list = Json::array();
    for (const VariantVerdict& v : verdicts) list.push_back(verdict_json(v));
    fmt::print("{}\n", Json{{"model", model.config.id}, {"backend", backend.name}, {"variants", list}}.dump(1));
  } else {
    fmt::print("\n{}", variants_summary(verdicts));
  }
  return std::all_of(verdicts.begin(), verdicts.end(),
                     [](const VariantVerdict& v) { return v.first_bad.empty() && v.stages > 0; });
}

}  // namespace doppler
