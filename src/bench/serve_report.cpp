// What a load's samples come to: figures, a table, a chart.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/version.h"
#include "bench/serve_load.h"
#include "bench/statistics.h"
#include "debug/svg.h"
#include "engine/machine.h"

namespace doppler {
namespace {

constexpr const char* kTimes[] = {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"};
constexpr const char* kNames[] = {"time to first token", "time per output token", "between tokens", "end to end"};
constexpr const char* kLineColours[] = {"#2b5fd9", "#e08a1e", "#1e7d4f", "#a03cc0"};
constexpr int kSlices = 50;  // of the duration, in a chart

// By the names of kTimes, in milliseconds, of the requests that were answered.
std::vector<std::vector<double>> times_of(const std::vector<RequestSample>& samples) {
  std::vector<std::vector<double>> times(std::size(kTimes));
  for (const RequestSample& s : samples) {
    if (!s.failure.empty()) continue;
    times[0].push_back(1e3 * s.ttft_s);
    if (s.tokens > 1) times[1].push_back(1e3 * s.tpot_s());
    for (const double gap : s.gaps_s) times[2].push_back(1e3 * gap);
    times[3].push_back(1e3 * s.e2e_s);
  }
  return times;
}

Json spread(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {{"count", values.size()},        {"mean", values.empty() ? 0 : sum / static_cast<double>(values.size())},
          {"p50", percentile(values, 50)}, {"p90", percentile(values, 90)},
          {"p95", percentile(values, 95)}, {"p99", percentile(values, 99)}};
}

Json range(LengthRange lengths) { return {{"least", lengths.least}, {"most", lengths.most}}; }

// Kinds of failure, the most frequent first, each with what was said the first time.
Json failures(const std::vector<RequestSample>& samples) {
  std::map<std::string, std::pair<int, std::string>> kinds;
  for (const RequestSample& s : samples) {
    if (s.failure.empty()) continue;
    const auto at = kinds.try_emplace(s.failure, 0, s.detail).first;
    ++at->second.first;
  }
  std::vector<std::pair<std::string, std::pair<int, std::string>>> list(kinds.begin(), kinds.end());
  std::stable_sort(list.begin(), list.end(), [](auto& a, auto& b) { return a.second.first > b.second.first; });
  Json json = Json::array();
  for (const auto& [kind, what] : list) {
    json.push_back({{"kind", kind}, {"count", what.first}, {"example", what.second}});
  }
  return json;
}

}  // namespace

bool ServeResult::any() const {
  return std::any_of(samples.begin(), samples.end(), [](const RequestSample& s) { return s.failure.empty(); });
}

Json ServeResult::to_json() const {
  const ServeWorkload& w = workload;
  const bool bounded = w.slo_ttft_ms > 0 || w.slo_tpot_ms > 0;
  int completed = 0, good = 0;
  int64_t prompt = 0, output = 0, cached = 0;
  std::vector<double> late;
  for (const RequestSample& s : samples) {
    late.push_back(1e3 * s.late_s);
    if (!s.failure.empty()) continue;
    ++completed;
    prompt += s.prompt_tokens;
    output += s.tokens;
    cached += s.cached_tokens;
    good += (w.slo_ttft_ms <= 0 || 1e3 * s.ttft_s <= w.slo_ttft_ms) &&
            (w.slo_tpot_ms <= 0 || 1e3 * s.tpot_s() <= w.slo_tpot_ms);
  }
  const auto a_second = [&](auto count) { return duration_s > 0 ? static_cast<double>(count) / duration_s : 0; };
  Json json = {{"schema", 1},
               {"kind", "serve"},
               {"server", {{"url", url}, {"model", w.model}, {"endpoint", w.endpoint}}},
               {"environment", {{"os", system_name()}, {"cpu", cpu_name()}, {"version", kVersion}}},
               {"workload",
                {{"clients", w.rate > 0 ? Json() : Json(w.clients)},
                 {"rate", w.rate > 0 ? Json(w.rate) : Json()},
                 {"requests", w.requests},
                 {"seconds", w.seconds},
                 {"prompt_tokens", range(w.prompt_tokens)},
                 {"tokens", range(w.tokens)},
                 {"shared_prefix", w.shared_prefix},
                 {"seed", w.seed},
                 {"slo_ttft_ms", w.slo_ttft_ms},
                 {"slo_tpot_ms", w.slo_tpot_ms},
                 {"body", w.body}}},
               {"duration_s", duration_s},
               {"completed", completed},
               {"failed", samples.size() - static_cast<size_t>(completed)},
               {"failures", failures(samples)},
               {"tokens_counted_by", counted ? "usage" : "chunks"},
               {"total_prompt_tokens", prompt},
               {"total_cached_tokens", cached},
               {"total_output_tokens", output},
               {"request_throughput", a_second(completed)},
               {"request_goodput", bounded ? Json(a_second(good)) : Json()},
               {"output_throughput", a_second(output)},
               {"total_token_throughput", a_second(prompt + output)}};
  const std::vector<std::vector<double>> times = times_of(samples);
  for (size_t i = 0; i < times.size(); ++i) json[kTimes[i]] = spread(times[i]);
  json["late_ms"] = spread(late);
  return json;
}

std::string ServeResult::to_table() const {
  const Json json = to_json();
  const ServeWorkload& w = workload;
  const auto number = [&](const char* key) { return json[key].get<double>(); };
  std::string text = fmt::format(
      "{} at {}, {}\n", w.model, url,
      w.rate > 0 ? fmt::format("{:g} requests a second (Poisson)", w.rate) : fmt::format("{} clients", w.clients));
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<22} {}\n", name, value);
  };
  row("requests", fmt::format("{} answered, {} failed, in {:.2f} s", json["completed"].get<int>(),
                              json["failed"].get<int>(), duration_s));
  for (const Json& kind : json["failures"]) {
    row("", fmt::format("{} × {}: {}", kind["count"].get<int>(), kind["kind"].text(), kind["example"].text()));
  }
  const double completed = std::max(1.0, number("completed"));
  row("tokens a request",
      fmt::format("{:.1f} in the prompt ({:.1f} found in a cache), {:.1f} in the answer{}",
                  number("total_prompt_tokens") / completed, number("total_cached_tokens") / completed,
                  number("total_output_tokens") / completed,
                  counted ? "" : "; words and chunks, the server counts none"));
  row("throughput",
      fmt::format("{:.2f} requests/s, {:.1f} output tok/s, {:.1f} tok/s with prompts", number("request_throughput"),
                  number("output_throughput"), number("total_token_throughput")));
  if (!json["request_goodput"].is_null()) {
    std::string bounds = w.slo_ttft_ms > 0 ? fmt::format("first token within {:g} ms", w.slo_ttft_ms) : "";
    if (w.slo_tpot_ms > 0) bounds += fmt::format("{}{:g} ms a token", bounds.empty() ? "" : ", ", w.slo_tpot_ms);
    row("goodput", fmt::format("{:.2f} requests/s ({})", number("request_goodput"), bounds));
  }
  text += fmt::format("  {:<22} {:>10} {:>10} {:>10} {:>10}\n", "ms", "mean", "p50", "p90", "p99");
  const auto times = [&](const char* name, const char* key) {
    const Json& t = json[key];
    text += fmt::format("  {:<22} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, t["mean"].get<double>(),
                        t["p50"].get<double>(), t["p90"].get<double>(), t["p99"].get<double>());
  };
  for (size_t i = 0; i < std::size(kTimes); ++i) times(kNames[i], kTimes[i]);
  if (w.rate > 0) times("sent late by", "late_ms");
  return text;
}

std::string ServeResult::to_svg() const {
  const std::vector<std::vector<double>> times = times_of(samples);
  std::vector<Series> by_percentile;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].empty()) continue;
    Series series{kNames[i], kLineColours[i], {}};
    for (int p = 1; p <= 99; p += 2) series.points.emplace_back(p, percentile(times[i], p));
    by_percentile.push_back(std::move(series));
  }
  const double slice = std::max(duration_s, 1e-9) / kSlices;  // seconds
  std::vector<double> chunks(kSlices), flying(kSlices);
  for (const RequestSample& s : samples) {
    if (!s.failure.empty()) continue;
    const auto slice_of = [&](double at) { return std::clamp(static_cast<int>(at / slice), 0, kSlices - 1); };
    double at = s.sent_s + s.ttft_s;
    ++chunks[static_cast<size_t>(slice_of(at))];
    for (const double gap : s.gaps_s) ++chunks[static_cast<size_t>(slice_of(at += gap))];
    for (int i = slice_of(s.sent_s); i <= slice_of(s.sent_s + s.e2e_s); ++i) ++flying[static_cast<size_t>(i)];
  }
  Series rate{"", kLineColours[0], {}}, requests{"", kLineColours[1], {}};
  for (size_t i = 0; i < kSlices; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * slice;
    rate.points.emplace_back(middle, chunks[i] / slice);
    requests.points.emplace_back(middle, flying[i]);
  }
  const std::vector<std::string> charts = {
      line_chart(by_percentile, {.x_label = "percentile", .y_label = "ms", .log_y = true}),
      line_chart({rate}, {.x_label = "seconds", .y_label = "chunks a second"}),
      line_chart({requests}, {.x_label = "seconds", .y_label = "requests in flight"})};
  return stack_charts(charts);
}

}  // namespace doppler
