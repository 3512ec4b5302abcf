#include "bench/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "engine/backend.h"
#include "engine/machine.h"
#include "model/cost.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr double kMiB = 1024.0 * 1024.0;

void check(const InferenceWorkload& w) {
  if (w.prompt_tokens >= 1 && w.tokens >= 1 && w.runs >= 1) return;
  fail({ErrorCode::kUsage, "a benchmark needs at least one prompt token, one token and one run", "bench inference", "",
        fmt::format("{} prompt tokens, {} tokens, {} runs", w.prompt_tokens, w.tokens, w.runs), ""});
}

}  // namespace

double InferenceResult::decode_bytes_s() const { return median(decode_tok_s) * bytes_per_token; }
double InferenceResult::bandwidth_share() const { return bandwidth > 0 ? decode_bytes_s() / bandwidth : 0; }

InferenceResult bench_inference(const ModelLoader& load, const InferenceWorkload& workload,
                                const std::function<void(std::string_view)>& progress) {
  check(workload);
  InferenceResult result;
  result.workload = workload;
  result.cpu = cpu_name();
  progress("loading");
  const auto load_start = Clock::now();
  const LoadedModel model = load();
  const int needed = workload.prompt_tokens + workload.tokens;
  const int context = workload.context > 0 ? workload.context : needed;
  const auto executor = make_executor(model, workload.backend, {context, workload.threads, 0, workload.device});
  result.load_ms = ms_since(load_start);
  result.model = model.config.id;
  result.quantization = model.quantization;
  result.backend = executor->name();
  result.artefact_bytes = model.artefact_bytes;

  const std::vector<int32_t> prompt = random_prompt(workload.prompt_tokens, model.config.vocab);
  for (int run = -1; run < workload.runs; ++run) {  // run −1 warms up and is not counted
    progress(run < 0 ? "warming up" : fmt::format("run {} of {}", run + 1, workload.runs));
    executor->reset();
    const auto start = Clock::now();
    int32_t token = argmax(executor->forward(prompt, Logits::kLast));
    const double first = ms_since(start);
    std::vector<double> times;
    while (static_cast<int>(times.size()) < workload.tokens) {
      const int wanted = std::min(workload.decode_batch, workload.tokens - static_cast<int>(times.size()));
      const auto token_start = Clock::now();
      std::vector<int32_t> chosen = executor->decode(token, wanted, {}, 0);
      if (chosen.empty()) chosen.push_back(argmax(executor->forward(std::span(&token, 1), Logits::kLast)));
      token = chosen.back();
      times.insert(times.end(), chosen.size(), ms_since(token_start) / static_cast<double>(chosen.size()));
    }
    if (run < 0) continue;
    double total = 0;
    for (const double ms : times) total += ms;
    result.first_token_ms.push_back(first);
    result.prefill_tok_s.push_back(workload.prompt_tokens * 1e3 / first);
    result.decode_tok_s.push_back(workload.tokens * 1e3 / total);
    result.token_ms.insert(result.token_ms.end(), times.begin(), times.end());
  }
  result.kv_bytes = executor->context_bytes();
  result.bytes_per_token = decode_cost(model.plan, model.weights, workload.prompt_tokens + workload.tokens / 2).bytes();
  result.peak_bytes = peak_resident_bytes();  // before the bandwidth measurement takes memory of its own
  progress("measuring the machine's read bandwidth");
  result.bandwidth = read_bandwidth(workload.threads);
  progress("");
  return result;
}

Json InferenceResult::to_json() const {
  return {{"model", model},
          {"quantization", quantization},
          {"backend", backend},
          {"cpu", cpu},
          {"workload",
           {{"prompt_tokens", workload.prompt_tokens},
            {"tokens", workload.tokens},
            {"runs", workload.runs},
            {"threads", workload.threads},
            {"decode_batch", workload.decode_batch}}},
          {"load_ms", load_ms},
          {"prefill_tok_s", {{"median", median(prefill_tok_s)}, {"runs", prefill_tok_s}}},
          {"decode_tok_s", {{"median", median(decode_tok_s)}, {"runs", decode_tok_s}}},
          {"first_token_ms", {{"median", median(first_token_ms)}, {"runs", first_token_ms}}},
          {"token_ms",
           {{"p50", percentile(token_ms, 50)}, {"p95", percentile(token_ms, 95)}, {"p99", percentile(token_ms, 99)}}},
          {"memory", {{"artefact_bytes", artefact_bytes}, {"kv_bytes", kv_bytes}, {"peak_bytes", peak_bytes}}},
          {"bytes_per_token", bytes_per_token},
          {"decode_gb_s", decode_bytes_s() / 1e9},
          {"read_bandwidth_gb_s", bandwidth / 1e9},
          {"bandwidth_share", bandwidth_share()}};
}

std::string InferenceResult::to_table() const {
  std::string text;
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<18} {}\n", name, value);
  };
  text += fmt::format("{} {} on {} ({})\n", model, quantization, backend, cpu);
  row("prefill", fmt::format("{:.1f} tok/s ({} tokens, median of {})", median(prefill_tok_s), workload.prompt_tokens,
                             workload.runs));
  row("decode",
      fmt::format("{:.2f} tok/s ({} tokens; a token takes {:.1f} ms, p95 {:.1f}, p99 {:.1f})", median(decode_tok_s),
                  workload.tokens, percentile(token_ms, 50), percentile(token_ms, 95), percentile(token_ms, 99)));
  row("first token", fmt::format("{:.0f} ms", median(first_token_ms)));
  row("load", fmt::format("{:.0f} ms", load_ms));
  row("read per token", fmt::format("{:.1f} MB", bytes_per_token / 1e6));
  row("decode reads", fmt::format("{:.2f} GB/s, {:.0f} % of the {:.2f} GB/s this machine reads", decode_bytes_s() / 1e9,
                                  100 * bandwidth_share(), bandwidth / 1e9));
  row("peak memory", fmt::format("{:.0f} MiB (artefact {:.0f}, context {:.0f})", static_cast<double>(peak_bytes) / kMiB,
                                 static_cast<double>(artefact_bytes) / kMiB, static_cast<double>(kv_bytes) / kMiB));
  return text;
}

}  // namespace doppler
