#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/inference.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "engine/backend.h"

namespace doppler {
namespace {

// "layer3.ffn_out" → "ffn_out"
std::string without_layer(const std::string& step) {
  const size_t dot = step.find('.');
  return dot == std::string::npos ? step : step.substr(dot + 1);
}

}  // namespace

TokenProfile profile_token(const ModelLoader& load, const InferenceWorkload& workload) {
  const LoadedModel model = load();
  const int context = workload.prompt_tokens + workload.tokens + workload.runs + 8;
  const auto executor = make_executor(model, workload.backend, {context, workload.threads, 0, workload.device});
  int32_t token = argmax(executor->forward(random_prompt(workload.prompt_tokens, model.config.vocab), Logits::kLast));
  // Warm: an idle GPU runs at a fraction of its clock.
  for (int i = 0; i < workload.tokens; i += workload.decode_batch) {
    const std::vector<int32_t> chosen =
        executor->decode(token, std::min(workload.decode_batch, workload.tokens - i), {}, 0);
    if (chosen.empty()) return {};
    token = chosen.back();
  }
  std::map<std::string, std::vector<double>> times;  // by name, one a run: the sum over its dispatches
  std::map<std::string, int> dispatches;
  std::vector<double> busy, span;
  TokenProfile profile;
  for (int run = 0; run < workload.runs; ++run) {
    const std::vector<ProfiledStep> steps = executor->profile(token);
    if (steps.empty()) return {};
    std::map<std::string, double> sums;
    dispatches.clear();
    double total = 0;
    for (const ProfiledStep& step : steps) {
      const std::string name = without_layer(step.name);
      sums[name] += step.end_ns - step.begin_ns;
      total += step.end_ns - step.begin_ns;
      ++dispatches[name];
    }
    for (const auto& [name, ns] : sums) times[name].push_back(ns);
    busy.push_back(total);
    span.push_back(steps.back().end_ns - steps.front().begin_ns);
    profile.dispatches = static_cast<int>(steps.size());
  }
  for (const auto& [name, samples] : times) profile.lines.push_back({name, dispatches[name], median(samples)});
  std::sort(profile.lines.begin(), profile.lines.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  profile.busy_ns = median(busy);
  profile.span_ns = median(span);
  return profile;
}

Json TokenProfile::to_json() const {
  Json steps = Json::array();
  for (const Line& line : lines)
    steps.push_back({{"step", line.name}, {"dispatches", line.dispatches}, {"us", line.ns / 1e3}});
  return {{"dispatches", dispatches}, {"busy_us", busy_ns / 1e3}, {"span_us", span_ns / 1e3}, {"steps", steps}};
}

std::string TokenProfile::to_table() const {
  if (lines.empty()) return "this backend cannot say where a token's time goes\n";
  std::string text =
      fmt::format("{:<20} {:>10} {:>12} {:>12} {:>8}\n", "step", "dispatches", "µs in all", "µs each", "share");
  for (const Line& line : lines) {
    text += fmt::format("{:<20} {:>10} {:>11.1f} {:>11.2f} {:>7.1f} %\n", line.name, line.dispatches, line.ns / 1e3,
                        line.ns / 1e3 / line.dispatches, 100 * line.ns / busy_ns);
  }
  text += fmt::format("{} dispatches, {:.0f} µs inside them, {:.0f} µs from first to last\n", dispatches, busy_ns / 1e3,
                      span_ns / 1e3);
  return text;
}

}  // namespace doppler
