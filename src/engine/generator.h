// Many answers at once: requests go in, text comes out piece by piece, one batch after another. Belongs to one thread,
// which calls step() as long as there is something to do; nothing blocks but the executor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generation.h"
#include "engine/scheduler.h"
#include "model/executor.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

struct GenerateRequest {
  std::vector<int32_t> prompt;
  GenerateOptions options = {};  // decode_batch has no meaning here
  int samples = 1;               // answers; the k-th is the one that seed + k gives alone
  std::string client = {};       // whose fair share it counts to
  uint64_t salt = 0;             // what was computed is found again among requests of the same salt
  AdapterUses adapters = {};     // of the executor's; none: the model as it is
};

// First the pieces of an answer, then, once for each sample, its end.
struct GenerateEvent {
  SampleId id;
  std::string_view piece = {};           // text that became certain; may be empty
  const Generation* so_far = nullptr;    // the answer up to here, this token included
  const Generation* finished = nullptr;  // the whole answer, with reason, times and tokens found in the cache
  const Error* failure = nullptr;        // the request cannot go on: its last event, whatever its other samples did
};
// Returns false to end this sample's answer. Must not call the generator.
using OnEvent = std::function<bool(const GenerateEvent& event)>;

class Generator {
 public:
  struct Options {
    SchedulerOptions scheduler;
    std::function<double()> now_ms = {};  // empty: the steady clock
  };
  // `tokenizer` may be null: then only ids come back. All must outlive the generator, and nobody else may use the
  // executor's cache.
  Generator(Executor& executor, const ModelConfig& config, const Tokenizer* tokenizer, Options options);

  // Refused, without an event, where the queue is full. Fails for what can never run.
  Scheduler::Submitted submit(GenerateRequest request, OnEvent on_event);
  // Ends what is left of a request, with its events, at once. Nothing happens if it has ended.
  void cancel(uint64_t request);
  // Runs one batch; where the executor takes several at once, as many are on their way when it returns. False: there is
  // nothing to run.
  bool step();

  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Request {
    OnEvent on_event;
    double submitted_ms = 0;
    double started_ms = -1, first_token_ms = -1;  // negative: not yet
    int prefilled = 0;
    std::vector<Answer> answers;  // by sample
    int unfinished = 0;
    int not_finite = -1;  // the sample whose logits were not; -1: none's
    AdapterUses adapters = {};
  };
  // May the executor choose the row's next token?
  bool leaves_choice(const Scheduler::Row& row) const;
  // The choices of a row, from its logits or, where there are none, as the executor made it.
  void take_choices(const Scheduler::Row& row, std::span<const float> logits, int32_t best, double now_ms);
  // Tells the rest and the end; returns whether it was the request's last.
  bool conclude(Request& request, SampleId id, double now_ms);
  // Ends requests whose logits are not finite, each with what explains it. The others go on.
  void fail_requests();
  void fail_watched(const Scheduler::Row& row);

  Executor& executor_;
  const ModelConfig& config_;
  const Tokenizer* tokenizer_;
  std::function<double()> now_ms_;
  Scheduler scheduler_;
  std::map<uint64_t, Request> requests_;
  struct Batch {
    std::span<const Scheduler::Row> rows;
    std::vector<BatchItem> items;
    std::string decided;  // for --trace perf
    double begun_ms = 0;
  };
  bool start_batch();
  void finish_batch();

  std::deque<Batch> batches_;     // on their way, the oldest first
  std::vector<uint64_t> failed_;  // requests, by the last batch
};

}  // namespace doppler
