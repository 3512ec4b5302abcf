#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/version.h"

namespace doppler::serve {
namespace {

// Inside the quotes of a label (Prometheus' text format).
std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Histogram::add(double seconds) {
  ++counts_[static_cast<size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin())];
  sum_ += seconds;
}

void Histogram::print(std::string& out, const std::string& name, const std::string& help) const {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP doppler_{0} {1}\n# TYPE doppler_{0} histogram\n", name, help);
  uint64_t count = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    count += counts_[i];
    fmt::format_to(to, "doppler_{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], count);
  }
  count += counts_.back();
  fmt::format_to(to, "doppler_{0}_bucket{{le=\"+Inf\"}} {1}\ndoppler_{0}_sum {2}\ndoppler_{0}_count {1}\n", name, count,
                 sum_);
}

void Metrics::publish(const EngineGauges& gauges) {
  const std::lock_guard lock(mutex_);
  gauges_ = gauges;
}

EngineGauges Metrics::gauges() const {
  const std::lock_guard lock(mutex_);
  return gauges_;
}

void Metrics::gap(double seconds) {
  const std::lock_guard lock(mutex_);
  gap_.add(seconds);
}

void Metrics::answered(int status) {
  const std::lock_guard lock(mutex_);
  ++statuses_[status];
}

void Metrics::finished(size_t prompt, const Generation& answer, bool first, bool last, double seconds) {
  const std::lock_guard lock(mutex_);
  const Timing& timing = answer.timing;
  generated_tokens_ += answer.token_ids.size();
  const bool aborted = answer.stop_reason == StopReason::kInterrupted;
  const bool full = answer.stop_reason == StopReason::kMaxTokens || answer.stop_reason == StopReason::kContextFull;
  ++reasons_[aborted ? "abort" : full ? "length" : "stop"];
  if (first && timing.first_token_ms > 0) {
    prompt_tokens_ += prompt;
    found_tokens_ += static_cast<uint64_t>(timing.found);
    first_token_.add(timing.first_token_ms / 1e3);
    queue_.add(timing.queued_ms / 1e3);
    prefill_.add(timing.prefill_ms / 1e3);
  }
  if (!last || aborted) return;
  decode_.add(timing.decode_ms / 1e3);
  whole_.add(seconds);
}

std::string Metrics::print(const std::vector<std::string>& models, uint64_t dropped_lines) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  const auto to = std::back_inserter(out);
  const auto one = [&](const char* kind, const char* name, const char* help, auto value) {
    fmt::format_to(to, "# HELP doppler_{0} {1}\n# TYPE doppler_{0} {2}\ndoppler_{0} {3}\n", name, help, kind, value);
  };
  const double share =
      gauges_.pages > 0 ? static_cast<double>(gauges_.held_pages) / static_cast<double>(gauges_.pages) : 0;
  one("gauge", "num_requests_running", "Sequences that are being answered.", gauges_.running);
  one("gauge", "num_requests_waiting", "Requests that wait to run.", gauges_.waiting);
  one("gauge", "kv_cache_usage_perc", "Share of the cache's pages that sequences hold, 0 to 1.", share);
  out += "# HELP doppler_cache_config_info Size of the cache.\n# TYPE doppler_cache_config_info gauge\n";
  fmt::format_to(to, "doppler_cache_config_info{{block_size=\"{}\",num_gpu_blocks=\"{}\"}} 1\n", gauges_.page_tokens,
                 gauges_.pages);
  one("gauge", "gpu_buffer_bytes", "Bytes of buffers on GPUs: weights, cache, scratch.", gauges_.gpu_buffer_bytes);
  out += "# HELP doppler_build_info Version.\n# TYPE doppler_build_info gauge\n";
  fmt::format_to(to, "doppler_build_info{{version=\"{}\",models=\"{}\"}} 1\n", std::string_view(kVersion),
                 escaped(fmt::format("{}", fmt::join(models, ","))));
  one("counter", "prompt_tokens_total", "Tokens of prompts.", prompt_tokens_);
  one("counter", "generation_tokens_total", "Tokens of answers.", generated_tokens_);
  one("counter", "prefix_cache_queries_total", "Prompt tokens looked for in the cache.", prompt_tokens_);
  one("counter", "prefix_cache_hits_total", "Prompt tokens found in the cache.", found_tokens_);
  one("counter", "num_preemptions_total", "Sequences whose pages somebody older needed.", gauges_.preemptions);
  out += "# HELP doppler_request_success_total Answers, by what ended them.\n";
  out += "# TYPE doppler_request_success_total counter\n";
  for (const auto& [reason, count] : reasons_) {
    fmt::format_to(to, "doppler_request_success_total{{finished_reason=\"{}\"}} {}\n", reason, count);
  }
  out +=
      "# HELP doppler_http_responses_total Answers over HTTP, by status.\n# TYPE doppler_http_responses_total "
      "counter\n";
  for (const auto& [status, count] : statuses_) {
    fmt::format_to(to, "doppler_http_responses_total{{status=\"{}\"}} {}\n", status, count);
  }
  one("counter", "log_lines_dropped_total", "Lines that the log had no room for.", dropped_lines);
  first_token_.print(out, "time_to_first_token_seconds", "From the request to its first token.");
  gap_.print(out, "inter_token_latency_seconds", "Between two tokens of one answer.");
  whole_.print(out, "e2e_request_latency_seconds", "From the request to the end of its answer.");
  queue_.print(out, "request_queue_time_seconds", "Before the first token of a prompt ran.");
  prefill_.print(out, "request_prefill_time_seconds", "The prompt.");
  decode_.print(out, "request_decode_time_seconds", "All tokens after the first.");
  return out;
}

}  // namespace doppler::serve
