#include "bench/baselines.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "bench/statistics.h"

namespace doppler {
namespace {

double best(const std::vector<double>& speeds) { return *std::max_element(speeds.begin(), speeds.end()); }

// Of a token that nobody disturbed. Others who use the machine make tokens slower, and nothing makes them faster.
double decode_speed(const InferenceResult& r) { return 1e3 / percentile(r.token_ms, 10); }

double ratio_named(const std::string& name, const InferenceResult& r, const std::string& where) {
  if (name == "bandwidth_share") return decode_speed(r) * r.bytes_per_token / r.bandwidth();
  if (name == "prefill_over_decode") return best(r.prefill_tok_s) / decode_speed(r);
  if (name == "p95_over_p50") return percentile(r.token_ms, 95) / percentile(r.token_ms, 50);
  if (name == "memory_over_artefact") {
    return static_cast<double>(r.peak_bytes) / static_cast<double>(r.artefact_bytes);
  }
  fail({.code = ErrorCode::kFormat,
        .what = "an unknown ratio",
        .where = where,
        .expected = "bandwidth_share, prefill_over_decode, p95_over_p50 or memory_over_artefact",
        .got = name});
}

}  // namespace

std::vector<BaselineVerdict> check_baselines(const Json& baselines, const std::filesystem::path& root,
                                             const std::string& backend, const OnStatus& progress) {
  const std::string where = "baselines";
  std::vector<BaselineVerdict> verdicts;
  for (const Json& item : require_array(baselines, "cases", where)) {
    const std::string name = require_string(item, "name", where);
    if (require_string(item, "backend", where) != backend) continue;
    InferenceWorkload workload = named_workload(require_string(item, "workload", where));
    workload.backend = backend;
    workload.runs = static_cast<int>(int_or(item, "runs", 3, where));
    workload.threads = static_cast<int>(int_or(item, "threads", 0, where));
    const InferenceResult result = bench_inference(root / require_string(item, "model", where), workload, progress);
    for (const auto& [ratio, range] : require_object(item, "ratios", where).items()) {
      if (!range.is_array() || range.size() != 2 || !range[0].is_number() || !range[1].is_number()) {
        fail({.code = ErrorCode::kFormat,
              .what = "a range is two numbers",
              .where = where,
              .expected = "[low, high]",
              .got = brief(range)});
      }
      BaselineVerdict v{name + " " + ratio, ratio_named(ratio, result, where), range[0].get<double>(),
                        range[1].get<double>(), false};
      v.ok = v.value >= v.low && v.value <= v.high;
      verdicts.push_back(v);
    }
    if (!result.quality.ok) verdicts.push_back({name + " quality: " + result.quality.reasons[0], 0, 1, 1, false});
  }
  if (verdicts.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "no baseline for this backend",
          .where = where,
          .expected = "a case with its name",
          .got = backend});
  }
  return verdicts;
}

}  // namespace doppler
