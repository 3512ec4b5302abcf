#include "debug/variants.h"

#include <fmt/format.h>

#include <algorithm>

namespace doppler {
namespace {

constexpr int kDecoded = 2;  // tokens that run one by one

VariantVerdict judge_variant(Executor& executor, const Stages& reference, const DebuggedModel& model,
                             const Bounds& bounds) {
  const int tokens = static_cast<int>(reference.prompt_ids.size());
  const Stages run =
      capture_run(executor, model.plan, reference.prompt_ids, {}, {.decoded = std::min(kDecoded, tokens - 1)});
  const Comparison comparison = compare_stages(run, reference, model, bounds);
  VariantVerdict verdict;
  verdict.stages = comparison.stages.size();
  verdict.first_bad = comparison.first_bad;
  verdict.cause = comparison.cause;
  for (const StageComparison& c : comparison.stages) verdict.worst = std::max(verdict.worst, c.rel_error);
  if (const Step* step = model.plan.find(comparison.first_bad)) verdict.kernel = executor.kernel_of(*step);
  return verdict;
}

}  // namespace

std::vector<VariantVerdict> try_variants(const MakeExecutor& make, const KernelWishes& only, const Stages& reference,
                                         const DebuggedModel& model, const Bounds& bounds,
                                         const std::function<void(const VariantVerdict&)>& seen) {
  std::vector<VariantVerdict> verdicts;
  const auto add = [&](VariantVerdict verdict, const std::string& kind, const std::string& variant) {
    verdict.kind = kind;
    verdict.variant = variant;
    if (seen) seen(verdict);
    verdicts.push_back(std::move(verdict));
  };
  std::vector<KernelKind> kinds;
  {
    const std::unique_ptr<Executor> usual = make({});
    kinds = usual->kernel_kinds();
    check_kernel_wishes(only, kinds, usual->name());
    add(judge_variant(*usual, reference, model, bounds), "", "");
  }
  for (const KernelKind& kind : kinds) {
    const std::string_view wish = wish_for(only, kind.kind);
    if (!only.empty() && wish.empty()) continue;
    for (const std::string& variant : kind.variants) {
      if (!wish.empty() && !names_variant(wish, variant)) continue;
      add(judge_variant(*make({{kind.kind, variant}}), reference, model, bounds), kind.kind, variant);
    }
  }
  return verdicts;
}

std::string variants_summary(std::span<const VariantVerdict> verdicts) {
  std::string text;
  for (const VariantVerdict& v : verdicts) {
    if (v.first_bad.empty()) continue;
    const std::string name = v.kind.empty() ? "what the backend chooses" : fmt::format("{}={}", v.kind, v.variant);
    text += fmt::format("{} differs, first at {}\n", name, v.first_bad);
    if (!v.kernel.empty()) text += fmt::format("  kernel   {}\n", v.kernel);
    text += fmt::format("  likely   {}\n", v.cause);
  }
  if (text.empty()) text = fmt::format("All {} compute what plain code does.\n", verdicts.size());
  return text;
}

}  // namespace doppler
