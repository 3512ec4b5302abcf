// What guessing from the prompt gains where an answer repeats it: both ways in turn, the same tokens.
#include <fmt/format.h>

#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "base/say.h"
#include "bench/inference.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "engine/backend.h"
#include "engine/sampler.h"
#include "engine/speculate.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kEdited = 16;  // one token in so many is another than in the prompt

// Writes `answer` behind the prompt, whatever the model would say: the passes and the choices that writing it takes.
double tok_s(Executor& executor, std::span<const int32_t> prompt, std::span<const int32_t> answer, Speculation mode,
             SpeculationResult& result) {
  Context context(executor);
  context.forward(prompt, Logits::kLast);
  NgramGuesser guesser;
  SpeculationPace pace(mode);
  for (const int32_t token : prompt) guesser.add(token);
  const auto start = Clock::now();
  for (size_t done = 0; done < answer.size();) {
    guesser.add(answer[done]);
    const size_t left = answer.size() - done - 1, most = std::min(left, static_cast<size_t>(pace.guesses()));
    const std::span<const int32_t> guess = guesser.guess(most);
    std::vector<int32_t> tokens = {answer[done]};
    tokens.insert(tokens.end(), guess.begin(), guess.end());
    const auto pass = Clock::now();
    Sequence& sequence = context.sequence();
    const BatchItem item{&sequence, tokens, Phase::kDecode, guess.empty() ? Logits::kLast : Logits::kAll};
    const std::span<const float> logits = executor.run(std::span(&item, 1));
    size_t right = 0;
    while (right < guess.size() && guess[right] == answer[done + 1 + right]) ++right;
    const size_t vocab = logits.size() / tokens.size();
    for (size_t row = 0; row <= right; ++row) (void)argmax(logits.subspan(row * vocab, vocab));
    pace.update(static_cast<int>(guess.size()), static_cast<int>(right), ms_since(pass));
    executor.cache().truncate(sequence, sequence.length() - static_cast<int>(guess.size() - right));
    result.guessed += static_cast<int>(guess.size());
    result.accepted += static_cast<int>(right);
    for (size_t i = 1; i <= right; ++i) guesser.add(answer[done + i]);
    done += 1 + right;
  }
  return static_cast<double>(answer.size()) * 1e3 / ms_since(start);
}

}  // namespace

SpeculationResult bench_speculation(const std::filesystem::path& path, const InferenceWorkload& workload) {
  const LoadedModel model = LoadedModel::load(path);
  model.need_text();
  const auto executor = make_executor(model, workload.backend,
                                      {.context = workload.prompt_tokens + workload.tokens + 8,
                                       .threads = workload.threads,
                                       .device = workload.device,
                                       .adapters = load_adapters(model, workload.adapters)});
  if (!executor->cache().can_rewind()) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the model cannot take tokens back, since its layers go on from a state: nothing is guessed",
          .where = path.string(),
          .todo = "Leave out --speculate"});
  }
  const std::vector<int32_t> prompt = random_prompt(workload.prompt_tokens, model.config.vocab);
  std::vector<int32_t> answer;
  for (int i = 0; i < workload.tokens; ++i) {
    const int32_t token = prompt[static_cast<size_t>(i) % prompt.size()];
    answer.push_back(i % kEdited == kEdited - 1 ? (token + 1) % model.config.vocab : token);
  }
  SpeculationResult result;
  result.model = model.config.id;
  result.backend = executor->name();
  for (int run = 0; run <= workload.runs; ++run) {
    SpeculationResult warm_up, plain;
    const double without = tok_s(*executor, prompt, answer, Speculation::kOff, plain);
    const double with = tok_s(*executor, prompt, answer, Speculation::kAuto, run == 0 ? warm_up : result);
    if (run == 0) continue;
    result.without_tok_s.push_back(without);
    result.with_tok_s.push_back(with);
  }
  return result;
}

Json SpeculationResult::to_json() const {
  return {{"schema", 1},
          {"kind", "speculation"},
          {"model", model},
          {"backend", backend},
          {"without_tok_s", {{"median", median(without_tok_s)}, {"runs", without_tok_s}}},
          {"with_tok_s", {{"median", median(with_tok_s)}, {"runs", with_tok_s}}},
          {"guessed", guessed},
          {"accepted", accepted}};
}

std::string SpeculationResult::to_table() const {
  return fmt::format(
      "{} on {}, an answer that is the prompt with one token in {} changed\n"
      "  decode             {:.1f} tok/s, {:.1f} without speculation: {:.2f} times\n"
      "  guesses            {} of {} were right\n",
      visible(model), backend, kEdited, median(with_tok_s), median(without_tok_s),
      median(with_tok_s) / median(without_tok_s), accepted, guessed);
}

}  // namespace doppler
