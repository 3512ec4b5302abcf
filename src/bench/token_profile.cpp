#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "bench/inference.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "engine/backend.h"
#include "engine/not_finite.h"
#include "engine/sampler.h"

namespace doppler {
namespace {

// "layer3.ffn_out" → "ffn_out"
std::string without_layer(const std::string& step) {
  const size_t dot = step.find('.');
  return dot == std::string::npos ? step : step.substr(dot + 1);
}

}  // namespace

TokenProfile profile_token(const std::filesystem::path& path, const InferenceWorkload& workload) {
  const LoadedModel model = LoadedModel::load(path);
  model.need_text();
  const int context = workload.prompt_tokens + workload.tokens + workload.runs + 32;
  const auto executor = make_executor(model, workload.backend,
                                      {.context = context,
                                       .threads = workload.threads,
                                       .device = workload.device,
                                       .gpu_memory = workload.gpu_memory,
                                       .adapters = load_adapters(model, workload.adapters),
                                       .kernels = parse_kernel_wishes(workload.kernels)});
  Context position(*executor);
  std::vector<int32_t> text = random_prompt(workload.prompt_tokens, model.config.vocab);
  const Likeliest first = likeliest(position.forward(text, Logits::kLast));
  int32_t token = first.finite ? first.id : ~first.id;
  const auto need_finite = [&] {
    if (token >= 0) return;
    position.release();
    fail(explain_not_finite(*executor, text, static_cast<size_t>(workload.prompt_tokens)));
  };
  need_finite();
  // Warm: an idle GPU runs at a fraction of its clock.
  for (int left = workload.tokens; left > 0;) {
    const std::vector<int32_t> chosen = position.decode(token, left, {}, 0);
    if (chosen.empty()) return {};
    text.push_back(token);
    text.insert(text.end(), chosen.begin(), chosen.end() - 1);
    token = chosen.back();
    need_finite();
    left -= static_cast<int>(chosen.size());
  }
  std::map<std::string, std::vector<double>> times;  // by name, one per run: the sum over its dispatches
  std::map<std::string, int> dispatches;
  std::vector<double> busy, span, gpu, encode, submit, read;
  TokenProfile profile;
  for (int run = 0; run < workload.runs; ++run) {
    const DecodeProfile one = position.profile(token);
    const std::vector<DecodeProfile::Dispatch>& steps = one.dispatches;
    if (steps.empty()) return {};
    std::map<std::string, double> sums;
    dispatches.clear();
    double total = 0;
    for (const DecodeProfile::Dispatch& step : steps) {
      const std::string name = without_layer(step.step);
      sums[name] += step.end_ns - step.begin_ns;
      total += step.end_ns - step.begin_ns;
      ++dispatches[name];
    }
    for (const auto& [name, ns] : sums) times[name].push_back(ns);
    busy.push_back(total);
    span.push_back(steps.back().end_ns - steps.front().begin_ns);
    profile.dispatches = static_cast<int>(steps.size());
    profile.batch = one.batch;
    gpu.push_back(one.gpu_ns);
    encode.push_back(one.encode_ns);
    submit.push_back(one.submit_ns);
    read.push_back(one.read_ns);
  }
  for (const auto& [name, samples] : times) profile.lines.push_back({name, dispatches[name], median(samples)});
  std::sort(profile.lines.begin(), profile.lines.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  profile.busy_ns = median(busy);
  profile.span_ns = median(span);
  profile.gpu_ns = median(gpu);
  profile.encode_ns = median(encode);
  profile.submit_ns = median(submit);
  profile.read_ns = median(read);
  return profile;
}

Json TokenProfile::to_json() const {
  Json steps = Json::array();
  for (const Line& line : lines)
    steps.push_back({{"step", line.name}, {"dispatches", line.dispatches}, {"us", line.ns / 1e3}});
  return {{"dispatches", dispatches},
          {"busy_us", busy_ns / 1e3},
          {"span_us", span_ns / 1e3},
          {"gpu_us", gpu_ns / 1e3},
          {"encode_us", encode_ns / 1e3},
          {"submit_us", submit_ns / 1e3},
          {"read_us", read_ns / 1e3},
          {"batch", batch},
          {"steps", steps}};
}

std::string TokenProfile::to_table() const {
  if (lines.empty()) return "this backend cannot say where a token's time goes\n";
  std::string text =
      fmt::format("{:<20} {:>10} {:>12} {:>12} {:>8}\n", "step", "dispatches", "µs in all", "µs each", "share");
  for (const Line& line : lines) {
    text += fmt::format("{:<20} {:>10} {:>11.1f} {:>11.2f} {:>7.1f} %\n", line.name, line.dispatches, line.ns / 1e3,
                        line.ns / 1e3 / line.dispatches, 100 * line.ns / busy_ns);
  }
  text += fmt::format("{} dispatches, {:.0f} µs inside them, {:.0f} µs in the gaps that the clocks widen\n", dispatches,
                      busy_ns / 1e3, (span_ns - busy_ns) / 1e3);
  text += fmt::format(
      "without clocks, {} tokens a submit: GPU {:.0f} µs a token; host: recording {:.0f} µs, submit {:.0f} µs, reading "
      "{:.1f} µs a token\n",
      batch, gpu_ns / 1e3, encode_ns / 1e3, submit_ns / 1e3, read_ns / 1e3);
  return text;
}

}  // namespace doppler
