#include "engine/open_session.h"

#include <random>

#include "base/error.h"

namespace doppler {
namespace {

void check_at_least(int value, int least, const char* where) {
  if (value >= least) return;
  fail({.code = ErrorCode::kUsage,
        .what = "a number is too small",
        .where = where,
        .expected = "at least " + std::to_string(least),
        .got = std::to_string(value)});
}

}  // namespace

int context_of(const LoadedModel& model, const SessionWishes& wishes) {
  return wishes.context > 0 ? wishes.context : default_context(model.config);
}

std::unique_ptr<Executor> open_executor(const LoadedModel& model, const SessionWishes& wishes,
                                        const OnBackend& chosen) {
  check_at_least(wishes.context, 0, "context");
  check_at_least(wishes.threads, 0, "threads");
  const int context = context_of(model, wishes);
  const BackendChoice backend = choose_backend(wishes.backend, wishes.device);
  if (chosen) chosen(backend, context);
  std::unique_ptr<Executor> executor = make_executor(model, backend.name,
                                                     {.context = context,
                                                      .threads = wishes.threads,
                                                      .device = wishes.device,
                                                      .gpu_memory = wishes.gpu_memory,
                                                      .adapters = load_adapters(model, wishes.adapters),
                                                      .kernels = wishes.kernels},
                                                     wishes.verify);
  if (backend.name == "webgpu" && wishes.self_test) self_test(*executor, model);
  trace_steps(*executor, model);
  return executor;
}

std::unique_ptr<Session> open_session(const LoadedModel& model, const SessionWishes& wishes, const OnBackend& chosen) {
  model.need_text();
  return std::make_unique<Session>(open_executor(model, wishes, chosen), model.tokenizer ? &*model.tokenizer : nullptr,
                                   context_of(model, wishes));
}

Sampling resolve(const SamplingWishes& wishes, const Sampling& recommended) {
  // Who takes the likeliest token draws from nothing.
  const Sampling& otherwise = wishes.temperature > 0 ? recommended : Sampling{};
  Sampling sampling;
  sampling.temperature = wishes.temperature;
  sampling.top_k = wishes.top_k.value_or(otherwise.top_k);
  sampling.top_p = wishes.top_p.value_or(otherwise.top_p);
  sampling.min_p = wishes.min_p.value_or(otherwise.min_p);
  sampling.repeat_penalty = wishes.repeat_penalty.value_or(otherwise.repeat_penalty);
  sampling.seed = wishes.seed ? *wishes.seed : wishes.temperature > 0 ? std::random_device{}() : 0;
  check(sampling);
  return sampling;
}

GenerateOptions answer_options(const LoadedModel& model, int max_tokens, const SamplingWishes& wishes,
                               std::vector<std::string> stop_texts) {
  check_at_least(max_tokens, 1, "max_tokens");
  return {.max_tokens = max_tokens,
          .sampling = resolve(wishes, model.recommended),
          .stop_texts = std::move(stop_texts),
          .end_ids = model.config.eos_ids};
}

}  // namespace doppler
