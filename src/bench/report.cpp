#include <fmt/format.h>

#include "base/error.h"
#include "base/say.h"
#include "bench/inference.h"
#include "bench/statistics.h"
#include "debug/svg.h"

namespace doppler {

double InferenceResult::decode_bytes_s() const { return median(decode_tok_s) * bytes_per_token; }
double InferenceResult::bandwidth() const { return median(bandwidths); }
double InferenceResult::bandwidth_share() const {
  if (bandwidth() <= 0) return 0;  // not known
  if (bandwidths.size() != decode_tok_s.size()) return decode_bytes_s() / bandwidth();
  std::vector<double> shares;
  for (size_t i = 0; i < bandwidths.size(); ++i) shares.push_back(decode_tok_s[i] * bytes_per_token / bandwidths[i]);
  return median(shares);
}
double InferenceResult::expert_hit_rate() const {
  const uint64_t wanted = expert_hits + expert_misses;
  return wanted > 0 ? static_cast<double>(expert_hits) / static_cast<double>(wanted) : 1;
}

Json InferenceResult::to_json() const {
  const auto runs = [](const std::vector<double>& samples) {
    return Json{{"median", median(samples)}, {"runs", samples}};
  };
  Json depth = Json::array(), prompt = Json::array();
  Json adapters = Json::array();
  for (const AdapterSpec& spec : workload.adapters)
    adapters.push_back({{"path", spec.path.string()}, {"scale", spec.scale}});
  Json cold;
  if (cold_load_ms) cold = *cold_load_ms;
  for (const SweepPoint& p : by_depth) depth.push_back({{"depth", p.tokens}, {"decode_tok_s", p.tok_s}});
  for (const SweepPoint& p : by_prompt) prompt.push_back({{"tokens", p.tokens}, {"prefill_tok_s", p.tok_s}});
  return {
      {"schema", 1},
      {"model",
       {{"id", model},
        {"hash", model_hash},
        {"quantization", quantization},
        {"shards", shards},
        {"tensors", tensors},
        {"bytes", artefact_bytes}}},
      {"environment", environment},
      {"workload",
       {{"name", workload.name},
        {"prompt_tokens", workload.prompt_tokens},
        {"tokens", workload.tokens},
        {"runs", workload.runs},
        {"threads", workload.threads},
        {"gpu_memory", workload.gpu_memory},
        {"decode_batch", workload.decode_batch},
        {"adapters", adapters},
        {"tapped_layers", workload.tapped_layers}}},
      {"backend", backend},
      {"surface", surface},
      {"load_ms", {{"cold", cold}, {"warm", warm_load_ms}}},
      {"first_token_ms", runs(first_token_ms)},
      {"prefill_tok_s", runs(prefill_tok_s)},
      {"decode_tok_s", runs(decode_tok_s)},
      {"token_ms",
       {{"p50", percentile(token_ms, 50)}, {"p95", percentile(token_ms, 95)}, {"p99", percentile(token_ms, 99)}}},
      {"per_token", {{"bytes", bytes_per_token}, {"submits", submits_per_token}, {"dispatches", dispatches_per_token}}},
      {"memory", {{"peak_host_bytes", peak_bytes}, {"peak_device_bytes", peak_device_bytes}, {"kv_bytes", kv_bytes}}},
      {"experts", {{"hits", expert_hits}, {"misses", expert_misses}, {"hit_rate", expert_hit_rate()}}},
      {"bandwidth",
       {{"decode_gb_s", decode_bytes_s() / 1e9}, {"machine_gb_s", bandwidth() / 1e9}, {"share", bandwidth_share()}}},
      {"quality", quality.to_json()},
      {"sweeps", {{"depth", depth}, {"prompt", prompt}}}};
}

std::string InferenceResult::to_table() const {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::string text;
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<18} {}\n", name, value);
  };
  const std::string where = backend == "webgpu" && environment["gpu"].is_object()
                                ? environment["gpu"]["name"].get<std::string>()
                                : environment["cpu"].get<std::string>();
  const Json& browser = environment["browser"];
  const std::string inside = browser.is_string() ? " in " + browser.get<std::string>() : "";
  text += fmt::format("{} {} on {}{} ({})\n", visible(model), visible(quantization), backend, inside, where);
  row("prefill", fmt::format("{:.1f} tok/s ({} tokens, median of {})", median(prefill_tok_s), workload.prompt_tokens,
                             workload.runs));
  row("decode",
      fmt::format("{:.2f} tok/s ({} tokens; a token takes {:.1f} ms, p95 {:.1f}, p99 {:.1f})", median(decode_tok_s),
                  workload.tokens, percentile(token_ms, 50), percentile(token_ms, 95), percentile(token_ms, 99)));
  row("first token", fmt::format("{:.0f} ms", median(first_token_ms)));
  row("load", cold_load_ms ? fmt::format("{:.0f} ms cold, {:.0f} ms warm", *cold_load_ms, warm_load_ms)
                           : fmt::format("{:.0f} ms warm (the browser's profile had it)", warm_load_ms));
  row("read per token", fmt::format("{:.1f} MB", bytes_per_token / 1e6));
  row("decode reads", fmt::format("{:.2f} GB/s, {:.0f} % of the {:.2f} GB/s this machine moves", decode_bytes_s() / 1e9,
                                  100 * bandwidth_share(), bandwidth() / 1e9));
  if (dispatches_per_token > 0) {
    row("a token takes", fmt::format("{:.2f} submits, {:.0f} dispatches", submits_per_token, dispatches_per_token));
  }
  if (expert_hits + expert_misses > 0) {
    row("experts paged", fmt::format("{:.1f} % of {} matrices that were decoded with were on the device",
                                     100 * expert_hit_rate(), expert_hits + expert_misses));
  }
  row("peak memory",
      fmt::format("{:.0f} MiB (artefact {:.0f}, context {:.0f}){}", static_cast<double>(peak_bytes) / kMiB,
                  static_cast<double>(artefact_bytes) / kMiB, static_cast<double>(kv_bytes) / kMiB,
                  peak_device_bytes > 0
                      ? fmt::format(", {:.0f} MiB on the device", static_cast<double>(peak_device_bytes) / kMiB)
                      : ""));
  for (const SweepPoint& p : by_depth) row("decode", fmt::format("{:.2f} tok/s after {} tokens", p.tok_s, p.tokens));
  for (const SweepPoint& p : by_prompt) row("prefill", fmt::format("{:.1f} tok/s of {} tokens", p.tok_s, p.tokens));
  std::string judged = quality.ok ? "ok" : "";
  for (const std::string& reason : quality.reasons) judged += (judged.empty() ? "" : "; ") + reason;
  if (quality.token_match) judged += fmt::format(", {:.0f} % of the reference's tokens", 100 * *quality.token_match);
  row("quality", judged);
  return text;
}

namespace {

constexpr const char* kColours[] = {"#2b5fd9", "#e08a1e", "#1e7d4f", "#a03cc0", "#c0392b", "#557"};

std::vector<Series> series_of(const std::vector<Json>& results, const char* sweep, const char* x, const char* y) {
  std::vector<Series> list;
  for (const Json& result : results) {
    const Json& points = require_array(require_object(result, "sweeps", "result"), sweep, "result");
    if (points.empty()) continue;
    const Json& model = require_object(result, "model", "result");
    Series series{
        fmt::format("{} {}, {}{}", string_or(model, "id", "", "result"), string_or(model, "quantization", "", "result"),
                    string_or(result, "backend", "", "result"),
                    string_or(result, "surface", "native", "result") == "browser" ? " in a browser" : ""),
        kColours[list.size() % std::size(kColours)],
        {}};
    for (const Json& point : points) {
      series.points.emplace_back(require_number(point, x, "result"), require_number(point, y, "result"));
    }
    list.push_back(std::move(series));
  }
  return list;
}

}  // namespace

std::string stack_charts(const std::vector<std::string>& charts) {
  const ChartOptions size;
  std::string body;
  int height = 0;
  for (const std::string& chart : charts) {
    body += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", height, chart);
    height += size.height + 10;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{2}</svg>\n",
      size.width, height, body);
}

std::string plot_sweeps(const std::vector<Json>& results) {
  const std::vector<Series> depth = series_of(results, "depth", "depth", "decode_tok_s");
  const std::vector<Series> prompt = series_of(results, "prompt", "tokens", "prefill_tok_s");
  if (depth.empty() && prompt.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "nothing to plot",
          .where = "--plot",
          .todo = "Measure with --depths 0,512,2048 or --prompts 64,512"});
  }
  std::vector<std::string> charts;
  if (!depth.empty()) charts.push_back(line_chart(depth, {"tokens in the context", "decode, tok/s"}));
  if (!prompt.empty()) charts.push_back(line_chart(prompt, {"prompt tokens", "prefill, tok/s"}));
  return stack_charts(charts);
}

}  // namespace doppler
