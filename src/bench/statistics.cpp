#include "bench/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/random.h"

namespace doppler {
namespace {

constexpr int kResamples = 2000;
constexpr uint64_t kSeed = 5;

std::vector<double> runs_of(const Json& result, const char* key, const std::string& where) {
  const Json& list = require_array(require_object(result, key, where), "runs", where);
  std::vector<double> runs;
  for (const Json& run : list) {
    if (!run.is_number())
      fail({.code = ErrorCode::kFormat, .what = "a run is no number", .where = where, .got = brief(run)});
    runs.push_back(run.get<double>());
  }
  if (runs.empty())
    fail({.code = ErrorCode::kFormat, .what = "a measurement without runs", .where = where, .got = key});
  return runs;
}

}  // namespace

double percentile(std::vector<double> samples, double p) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double at = std::clamp(p, 0.0, 100.0) / 100 * static_cast<double>(samples.size() - 1);
  const size_t low = static_cast<size_t>(std::floor(at));
  const size_t high = std::min(low + 1, samples.size() - 1);
  return samples[low] + (samples[high] - samples[low]) * (at - static_cast<double>(low));
}

Ratio ratio_of_medians(const std::vector<double>& a, const std::vector<double>& b) {
  Ratio ratio;
  if (a.empty() || b.empty() || median(a) <= 0) return ratio;
  ratio.value = median(b) / median(a);
  const bool pairs = a.size() == b.size();
  std::vector<double> resampled;
  uint64_t draw = 0;
  for (int i = 0; i < kResamples; ++i) {
    std::vector<double> x, y;
    for (size_t n = 0; n < a.size(); ++n) {
      const size_t at = philox(kSeed, draw++)[0] % a.size();
      x.push_back(a[at]);
      if (pairs) y.push_back(b[at]);
    }
    for (size_t n = 0; !pairs && n < b.size(); ++n) y.push_back(b[philox(kSeed, draw++)[0] % b.size()]);
    resampled.push_back(median(y) / std::max(median(x), 1e-30));
  }
  ratio.low = percentile(resampled, 2.5);
  ratio.high = percentile(resampled, 97.5);
  return ratio;
}

Json compare_results(const Json& a, const Json& b, const std::string& a_name, const std::string& b_name) {
  Json rows = Json::array();
  for (const char* key : {"prefill_tok_s", "decode_tok_s", "first_token_ms"}) {
    const std::vector<double> x = runs_of(a, key, a_name), y = runs_of(b, key, b_name);
    const Ratio ratio = ratio_of_medians(x, y);
    rows.push_back({{"what", key},
                    {"a", median(x)},
                    {"b", median(y)},
                    {"ratio", ratio.value},
                    {"low", ratio.low},
                    {"high", ratio.high},
                    {"certain", ratio.certain()}});
  }
  return {{"a", a_name}, {"b", b_name}, {"rows", rows}};
}

std::string comparison_text(const Json& comparison) {
  std::string text = fmt::format("A: {}\nB: {}\n{:<16}{:>12}{:>12}{:>9}  {}\n", comparison["a"].get<std::string>(),
                                 comparison["b"].get<std::string>(), "", "A", "B", "B / A", "95 % of resampled runs");
  for (const Json& row : comparison["rows"]) {
    text += fmt::format("{:<16}{:>12.2f}{:>12.2f}{:>9.3f}  {:.3f} … {:.3f}{}\n", row["what"].get<std::string>(),
                        row["a"].get<double>(), row["b"].get<double>(), row["ratio"].get<double>(),
                        row["low"].get<double>(), row["high"].get<double>(),
                        row["certain"].get<bool>() ? "" : "  (may be noise)");
  }
  return text;
}

}  // namespace doppler
