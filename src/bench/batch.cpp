#include "bench/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/say.h"
#include "base/version.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "engine/backend.h"
#include "engine/machine.h"
#include "engine/not_finite.h"
#include "engine/sampler.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// All prompts, then the likeliest token of every sequence again and again.
void run_together(Executor& executor, int vocab, const BatchWorkload& workload, BatchResult::Point& point) {
  const size_t count = static_cast<size_t>(point.sequences);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Sequence> sequences;
  std::vector<BatchItem> batch;
  const Phase phase = executor.phase_of_prompt(static_cast<size_t>(workload.prompt_tokens));
  for (size_t i = 0; i < count; ++i) {
    prompts.push_back(random_prompt(workload.prompt_tokens, vocab));
    prompts[i][0] = static_cast<int32_t>(i % static_cast<size_t>(vocab));  // no two have a prefix in common
    sequences.push_back(executor.cache().start(i));
  }
  for (size_t i = 0; i < count; ++i) batch.push_back({&sequences[i], prompts[i], phase, Logits::kLast});
  std::vector<int32_t> tokens(count);
  // Of every `lanes`-th sequence from `lane` on.
  const auto choose = [&](std::span<const float> logits, size_t lane, size_t lanes) {
    const size_t row = logits.size() / ((count - lane + lanes - 1) / lanes);
    for (size_t i = lane, n = 0; i < count; i += lanes, ++n) {
      // Of logits that are not finite a backend gives the complement of a token.
      const Likeliest choice = logits.empty() ? Likeliest{executor.best()[n], executor.best()[n] >= 0}
                                              : likeliest(logits.subspan(n * row, row));
      if (!choice.finite) {
        sequences.clear();
        fail(explain_not_finite(executor, prompts[i], static_cast<size_t>(workload.prompt_tokens)));
      }
      tokens[i] = choice.id;
      prompts[i].push_back(choice.id);
    }
  };
  const Logits wish = executor.can_choose() ? Logits::kBest : Logits::kLast;
  auto start = Clock::now();
  choose(executor.run(batch), 0, 1);
  point.prefill_tok_s.push_back(static_cast<double>(count) * workload.prompt_tokens / seconds_since(start));
  const size_t lanes = std::min(static_cast<size_t>(executor.lanes()), count);
  const auto begin = [&](size_t lane) {
    batch.clear();
    for (size_t i = lane; i < count; i += lanes)
      batch.push_back({&sequences[i], std::span(&tokens[i], 1), Phase::kDecode, wish});
    executor.start(batch);
  };
  start = Clock::now();
  for (size_t lane = 0; lane < lanes; ++lane) begin(lane);
  for (int step = 0; step < workload.tokens; ++step) {
    for (size_t lane = 0; lane < lanes; ++lane) {
      choose(executor.finish(), lane, lanes);
      if (step + 1 < workload.tokens) begin(lane);
    }
  }
  point.decode_tok_s.push_back(static_cast<double>(count) * workload.tokens / seconds_since(start));
}

}  // namespace

BatchResult bench_batch(const std::filesystem::path& path, const BatchWorkload& workload, const OnStatus& progress) {
  progress("loading");
  const LoadedModel model = LoadedModel::load(path);
  model.need_text();
  BatchResult result;
  result.workload = workload;
  result.model = model.config.id;
  result.quantization = model.quantization;
  const int most = *std::max_element(workload.sequences.begin(), workload.sequences.end());
  const auto executor = make_executor(model, workload.backend,
                                      {.context = workload.prompt_tokens + workload.tokens,
                                       .threads = workload.threads,
                                       .device = workload.device,
                                       .sequences = most});
  result.backend = executor->name();
  result.environment = {{"os", system_name()}, {"cpu", cpu_name()}, {"version", kVersion}, {"gpu", Json()}};
  if (result.backend == "webgpu") {
    if (const auto gpu = describe_gpu(workload.device)) result.environment["gpu"] = {{"name", gpu->name}};
  }
  result.cache_bytes = executor->context_bytes();
  for (const int count : workload.sequences) result.points.push_back({.sequences = count});
  // All sizes in turn, so that the machine's moods meet every one of them; the first round warms up.
  for (int run = 0; run <= workload.runs; ++run) {
    for (BatchResult::Point& point : result.points) {
      progress(fmt::format("run {} of {}, {} sequences", run, workload.runs, point.sequences));
      BatchResult::Point warm_up{.sequences = point.sequences};
      run_together(*executor, model.config.vocab, workload, run == 0 ? warm_up : point);
      executor->cache().drop_prefixes();
    }
  }
  progress("");
  return result;
}

Json BatchResult::to_json() const {
  Json list = Json::array();
  for (const Point& p : points) {
    list.push_back({{"sequences", p.sequences},
                    {"prefill_tok_s", {{"median", median(p.prefill_tok_s)}, {"runs", p.prefill_tok_s}}},
                    {"decode_tok_s", {{"median", median(p.decode_tok_s)}, {"runs", p.decode_tok_s}}},
                    {"decode_tok_s_per_sequence", median(p.decode_tok_s) / p.sequences}});
  }
  return {{"schema", 1},
          {"kind", "batch"},
          {"model", {{"id", model}, {"quantization", quantization}}},
          {"environment", environment},
          {"workload",
           {{"prompt_tokens", workload.prompt_tokens},
            {"tokens", workload.tokens},
            {"runs", workload.runs},
            {"threads", workload.threads}}},
          {"backend", backend},
          {"cache_bytes", cache_bytes},
          {"batch", list}};
}

std::string BatchResult::to_table() const {
  std::string text =
      fmt::format("{} {} on {}, {} + {} tokens per sequence, median of {}\n", visible(model), visible(quantization),
                  backend, workload.prompt_tokens, workload.tokens, workload.runs);
  text += fmt::format("  {:>9}  {:>14}  {:>13}  {:>12}  {:>9}\n", "sequences", "prefill tok/s", "decode tok/s",
                      "per sequence", "times one");
  const auto one = std::find_if(points.begin(), points.end(), [](const Point& p) { return p.sequences == 1; });
  for (const Point& p : points) {
    const double decode = median(p.decode_tok_s);
    text += fmt::format("  {:>9}  {:>14.1f}  {:>13.1f}  {:>12.2f}  {:>9}\n", p.sequences, median(p.prefill_tok_s),
                        decode, decode / p.sequences,
                        one == points.end() ? "" : fmt::format("{:.2f}", decode / median(one->decode_tok_s)));
  }
  return text;
}

}  // namespace doppler
