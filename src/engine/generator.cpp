#include "engine/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/not_finite.h"

namespace doppler {
namespace {

double steady_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

SchedulerOptions with_lanes(SchedulerOptions options, int lanes) {
  options.lanes = lanes;
  return options;
}

}  // namespace

Generator::Generator(Executor& executor, const ModelConfig& config, const Tokenizer* tokenizer, Options options)
    : executor_(executor),
      config_(config),
      tokenizer_(tokenizer),
      now_ms_(options.now_ms ? std::move(options.now_ms) : steady_ms),
      scheduler_(executor.cache(), with_lanes(options.scheduler, executor.lanes())) {}

Scheduler::Submitted Generator::submit(GenerateRequest request, OnEvent on_event) {
  // One bad token would fail the batch, and with it everybody else's answer.
  check_tokens(config_, request.prompt, 0, scheduler_.context());
  for (const auto& [id, bias] : request.options.edits.bias) check_tokens(config_, std::span(&id, 1), 0, 1);
  Request entry{.on_event = std::move(on_event),
                .submitted_ms = now_ms_(),
                .answers = {},
                .unfinished = request.samples,
                .adapters = request.adapters};
  for (int k = 0; k < request.samples; ++k) {
    GenerateOptions options = request.options;
    options.sampling.seed += static_cast<uint64_t>(k);
    entry.answers.emplace_back(request.prompt, options, tokenizer_, scheduler_.context());
  }
  const Phase phase = executor_.phase_of_prompt(request.prompt.size());
  const Scheduler::Submitted submitted = scheduler_.submit({.prompt = std::move(request.prompt),
                                                            .phase = phase,
                                                            .samples = request.samples,
                                                            .client = std::move(request.client),
                                                            .salt = request.salt,
                                                            .adapters = std::move(request.adapters)});
  if (submitted.id != 0) requests_.emplace(submitted.id, std::move(entry));
  return submitted;
}

void Generator::cancel(uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request request = std::move(found->second);
  requests_.erase(found);
  scheduler_.cancel(id);
  const double now = now_ms_();
  for (size_t k = 0; k < request.answers.size(); ++k) {
    if (request.answers[k].ended()) continue;
    request.answers[k].interrupt();
    conclude(request, {id, static_cast<int>(k)}, now);
  }
}

bool Generator::step() {
  const size_t lanes = static_cast<size_t>(executor_.lanes());
  while (batches_.size() < lanes && start_batch()) continue;
  if (batches_.empty()) return false;
  finish_batch();
  return true;
}

bool Generator::start_batch() {
  const double begin = now_ms_();
  const std::span<const Scheduler::Row> rows = scheduler_.step(begin);
  if (rows.empty()) return false;
  Batch& batch = batches_.emplace_back();
  batch.rows = rows;
  batch.begun_ms = begin;
  for (const Scheduler::Row& row : rows) {
    batch.items.push_back(row.item);
    if (leaves_choice(row)) batch.items.back().want = Logits::kBest;
    Request& request = requests_.at(row.id.request);
    if (request.started_ms < 0) {
      request.started_ms = begin;
      for (Answer& answer : request.answers) {
        answer.timing().queued_ms = begin - request.submitted_ms;
        answer.timing().found = scheduler_.found(row.id.request);
      }
    }
    // Until its first token is chosen: later pieces compute again what was put back.
    if (row.prefill && request.first_token_ms < 0) request.prefilled += static_cast<int>(row.item.tokens.size());
  }
  if (tracing(Trace::kPerf)) batch.decided = scheduler_.describe();
  executor_.start(batch.items);
  return true;
}

void Generator::finish_batch() {
  const std::span<const float> logits = executor_.finish();
  const double now = now_ms_();
  const Batch batch = std::move(batches_.front());
  batches_.pop_front();
  if (tracing(Trace::kPerf)) trace(Trace::kPerf, fmt::format("{}: {:.2f} ms", batch.decided, now - batch.begun_ms));
  const std::span<const Scheduler::Row> rows = batch.rows;
  scheduler_.ran(now);
  size_t wanted = 0;
  for (const BatchItem& item : batch.items) wanted += item.want == Logits::kLast;
  const size_t vocab = wanted > 0 ? logits.size() / wanted : 0;
  fail_watched(rows[0]);
  const std::span<const int32_t> best = executor_.best();
  size_t at = 0, chosen = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (batch.items[i].want == Logits::kBest) {
      take_choices(rows[i], {}, best[chosen++], now);
    } else if (batch.items[i].want == Logits::kLast) {
      take_choices(rows[i], logits.subspan(at, vocab), -1, now);
      at += vocab;
    }
  }
  fail_requests();
}

// The watch sees the steps of the batch's first item.
void Generator::fail_watched(const Scheduler::Row& row) {
  const auto entry = requests_.find(row.id.request);
  if (entry == requests_.end() || entry->second.not_finite >= 0) return;
  Answer& answer = entry->second.answers[static_cast<size_t>(row.id.sample)];
  if (!answer.watch() || answer.ended()) return;
  std::optional<Error> fault = answer.watch()->take_error();
  if (!fault) return;
  answer.fail(std::move(*fault));
  entry->second.not_finite = row.id.sample;
  failed_.push_back(row.id.request);
}

void Generator::fail_requests() {
  for (const uint64_t id : failed_) {
    const auto found = requests_.find(id);
    Request request = std::move(found->second);
    requests_.erase(found);
    scheduler_.cancel(id);  // its pages are needed to look for the step
    const Answer& answer = request.answers[static_cast<size_t>(request.not_finite)];
    const size_t prompt = answer.text().size() - answer.result().token_ids.size();
    const Error error =
        answer.fault() ? *answer.fault() : explain_not_finite(executor_, answer.text(), prompt, request.adapters);
    if (request.on_event)
      request.on_event({.id = {id, request.not_finite}, .so_far = &answer.result(), .failure = &error});
  }
  failed_.clear();
}

bool Generator::leaves_choice(const Scheduler::Row& row) const {
  if (row.choices != 1 || row.prefill || row.item.tokens.size() != 1 || !executor_.can_choose() ||
      !row.item.sequence->adapters().empty())
    return false;
  return requests_.at(row.id.request).answers[static_cast<size_t>(row.id.sample)].wants_best();
}

void Generator::take_choices(const Scheduler::Row& row, std::span<const float> logits, int32_t best, double now_ms) {
  const auto entry = requests_.find(row.id.request);
  if (entry == requests_.end()) return;  // cancelled while the batch was on its way
  Request& request = entry->second;
  if (request.not_finite >= 0) return;
  for (SampleId id = row.id; id.sample < row.id.sample + row.choices; ++id.sample) {
    Answer& answer = request.answers[static_cast<size_t>(id.sample)];
    Timing& timing = answer.timing();
    if (answer.result().token_ids.empty()) {
      request.first_token_ms = now_ms - request.submitted_ms;
      timing.prefill_ms = now_ms - request.started_ms;
      timing.prefilled = request.prefilled;
      timing.first_token_ms = request.first_token_ms;
    } else {
      ++timing.decoded;
    }
    const int32_t token = logits.empty() ? best : answer.choose(logits);
    if (logits.empty() && token < 0) answer.push(token);
    if (answer.not_finite()) {
      request.not_finite = id.sample;
      failed_.push_back(row.id.request);
      return;
    }
    const std::string piece = answer.ended() ? "" : answer.push(token);
    if (answer.fault()) {
      request.not_finite = id.sample;
      failed_.push_back(row.id.request);
      return;
    }
    if (request.on_event && !request.on_event({.id = id, .piece = piece, .so_far = &answer.result()}))
      answer.interrupt();
    if (!answer.ended()) {
      scheduler_.choose(id, token);
      continue;
    }
    scheduler_.finish(id);
    if (conclude(request, id, now_ms)) {
      requests_.erase(entry);
      return;
    }
  }
}

bool Generator::conclude(Request& request, SampleId id, double now_ms) {
  Answer& answer = request.answers[static_cast<size_t>(id.sample)];
  const std::string rest = answer.finish();
  Timing& timing = answer.timing();
  if (request.first_token_ms >= 0) timing.decode_ms = now_ms - request.submitted_ms - request.first_token_ms;
  if (request.on_event) {
    if (!rest.empty()) request.on_event({.id = id, .piece = rest, .so_far = &answer.result()});
    request.on_event({.id = id, .so_far = &answer.result(), .finished = &answer.result()});
  }
  return --request.unfinished == 0;
}

}  // namespace doppler
