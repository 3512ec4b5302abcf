#include "bench/baselines.h"

#include <fmt/format.h>

#include "base/error.h"
#include "bench/statistics.h"

namespace doppler {
namespace {

double ratio_named(const std::string& name, const InferenceResult& r, const std::string& where) {
  if (name == "bandwidth_share") return r.bandwidth_share();
  if (name == "prefill_over_decode") return median(r.prefill_tok_s) / median(r.decode_tok_s);
  if (name == "p95_over_p50") return percentile(r.token_ms, 95) / percentile(r.token_ms, 50);
  if (name == "memory_over_artefact") {
    return static_cast<double>(r.peak_bytes) / static_cast<double>(r.artefact_bytes);
  }
  fail({ErrorCode::kFormat, "an unknown ratio", where,
        "bandwidth_share, prefill_over_decode, p95_over_p50 or memory_over_artefact", name, ""});
}

}  // namespace

std::vector<BaselineVerdict> check_baselines(const Json& baselines, const std::filesystem::path& root,
                                             const std::string& backend, const Told& progress) {
  const std::string where = "baselines";
  std::vector<BaselineVerdict> verdicts;
  for (const Json& item : require_array(baselines, "cases", where)) {
    const std::string name = require_string(item, "name", where);
    if (require_string(item, "backend", where) != backend) continue;
    InferenceWorkload workload = named_workload(require_string(item, "workload", where));
    workload.backend = backend;
    workload.runs = static_cast<int>(int_or(item, "runs", 3, where));
    const InferenceResult result = bench_inference(root / require_string(item, "model", where), workload, progress);
    for (const auto& [ratio, range] : require_object(item, "ratios", where).items()) {
      if (!range.is_array() || range.size() != 2 || !range[0].is_number() || !range[1].is_number()) {
        fail({ErrorCode::kFormat, "a range is two numbers", where, "[low, high]", brief(range), ""});
      }
      BaselineVerdict v{name + " " + ratio, ratio_named(ratio, result, where), range[0].get<double>(),
                        range[1].get<double>(), false};
      v.ok = v.value >= v.low && v.value <= v.high;
      verdicts.push_back(v);
    }
    if (!result.quality.ok) verdicts.push_back({name + " quality: " + result.quality.reasons[0], 0, 1, 1, false});
  }
  if (verdicts.empty()) {
    fail({ErrorCode::kUsage, "no baseline for this backend", where, "a case with its name", backend, ""});
  }
  return verdicts;
}

}  // namespace doppler
