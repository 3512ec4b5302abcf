// Which tokens run next. Many requests share one cache and one pass over the weights: each step runs one token of every
// sequence that is being answered, and at most one piece of a prompt beside them. Decides, and nothing else: it runs no
// model, chooses no token, knows no clock but the one it is told. The same calls give the same batches.
//
//   for (auto rows = scheduler.step(now); !rows.empty(); rows = scheduler.step(now)) {
//     … run the rows' items …
//     scheduler.ran(now);
//     … choose() or finish() for every sample that had logits …
//   }
//
// Where an executor takes several batches at once (Executor::lanes), step() may be called as many times before ran(),
// which is told of them in their order; each batch then has its share of the sequences.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/executor.h"

namespace doppler {

struct SchedulerOptions {
  int context = 0;                // tokens of a sequence at most
  int sequences = 64;             // that run at once
  int sequences_per_client = 16;  // of those; a request of more samples runs when its client has nothing else
  int queue = 256;                // requests that wait; one more is refused
  int queue_per_client = 64;      // of those
  int piece = 512;                // prompt tokens of one step at most: a backend's block
  double piece_ms = 50;           // time that a prompt may add to a step in which others are answered
  int lanes = 1;                  // steps that may run at once
};

struct ScheduleRequest {
  std::vector<int32_t> prompt;
  Phase phase = Phase::kPrefill;  // of the prompt: Executor::phase_of_prompt of its length
  int samples = 1;                // answers to it; the prompt runs once
  std::string client = {};
  uint64_t salt = 0;  // prefixes are found among requests of the same salt and the same adapters
  AdapterUses adapters = {};
};

struct SampleId {
  uint64_t request = 0;
  int sample = 0;
  auto operator<=>(const SampleId&) const = default;
};

enum class Refusal : uint8_t { kNone, kQueueFull, kClientQueueFull };

class Scheduler {
 public:
  // All sequences of the cache must be this scheduler's.
  Scheduler(KvCache& cache, const SchedulerOptions& options);

  // Tokens of a sequence at most: what the options say, or what all pages can hold.
  int context() const { return context_; }

  struct Submitted {
    uint64_t id = 0;  // 0: refused
    Refusal refusal = Refusal::kNone;
  };
  // Fails for what can never run: no tokens, more than context(), more samples than sequences.
  Submitted submit(ScheduleRequest request);
  // At once: no later step has it, and its pages are free. Where there is one lane, not between step() and ran().
  void cancel(uint64_t request);

  struct Row {
    SampleId id;
    BatchItem item;
    bool prefill = false;  // a piece of a prompt, or of what is computed again
    int choices = 0;       // samples that choose from its logits, `id` and those after it; 0: no logits
  };
  // The next batch, for which there is room in the cache; valid until the ran() after its own. Empty: there is
  // nothing to run, or not before a batch that runs.
  std::span<const Row> step(double now_ms);
  // The executor has run the batch, the oldest.
  void ran(double now_ms);
  // For every sample that had logits, before the next step: the token that comes next, or that there is none.
  void choose(SampleId id, int32_t token);
  void finish(SampleId id);

  // Prompt tokens that were found in the cache when the request started.
  int found(uint64_t request) const { return requests_.at(request).found; }
  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size(); }
  size_t put_back() const { return put_back_.size(); }
  uint64_t times_put_back() const { return times_put_back_; }

  // What the last step() decided, in one line. Before ran().
  std::string describe() const;

 private:
  struct Request;
  struct Sample {
    Request* request = nullptr;
    int index = 0;
    Sequence sequence;            // of tokens that ran
    std::vector<int32_t> tokens;  // the prompt and what was chosen
    bool busy = false;            // a batch that runs has it
  };
  struct Step {
    std::vector<Row> rows;
    double begun_ms = 0;
  };
  struct Request {
    uint64_t id = 0;
    uint64_t order = 0;  // in which requests started; 0: not yet
    ScheduleRequest spec;
    int found = 0;
    int unfinished = 0;     // samples
    bool prompted = false;  // the prompt ran to its end, and every sample has a sequence or had one
    std::vector<Sample> samples;
  };
  using Samples = std::vector<Sample*>;  // the oldest first: by their request's order, then by index

  static bool older(const Sample* a, const Sample* b);
  static void insert(Samples& samples, Sample& sample);
  static void remove(Samples& samples, const Sample& sample);
  Sample& find(SampleId id);
  Sample* find_if_there(SampleId id);
  size_t share() const;
  bool busy_with_prompt(const Sample& sample) const;
  bool decoding(const Sample& sample) const;
  int piece_tokens(Phase phase) const;
  size_t blocks_to_come(const KvLayout::Group& group, int length, size_t tokens) const;
  bool make_room(Sample& sample, int tokens);
  void put_back(Sample& sample);
  void add_token(Sample& sample);
  void add_piece(Sample& sample, int answered);
  Sample* next_waiting();
  Sample* admit();
  void drop(Request& request);
  void measure(const std::vector<Row>& rows, double ms);

  KvCache& cache_;
  const SchedulerOptions options_;
  int context_ = 0;
  uint64_t submitted_ = 0, started_ = 0, steps_ = 0, times_put_back_ = 0;
  std::map<uint64_t, Request> requests_;
  std::deque<Request*> waiting_;           // that never ran, in the order of arrival
  Samples running_;                        // that hold pages; at most one of them still runs its prompt
  Samples put_back_;                       // whose pages somebody older needed
  std::map<std::string, int> unfinished_;  // samples of requests that have started, by client
  std::map<std::string, int> waiting_of_;  // requests in waiting_, by client
  std::deque<Step> running_steps_;         // the oldest first
  Step ran_;                               // the last that ran
  std::vector<Row> rows_;                  // of the step that is being made
  std::vector<SampleId> put_back_now_;     // by the last step
  int decoded_ = 0;                        // rows of the last step without a piece
  double decode_ms_ = 0;                   // of such steps, lately
  double token_ms_[2] = {-1, -1};          // of a piece, by phase, lately; negative: not known
  int last_most_[2] = {0, 0};              // tokens of the last piece at most, by phase, while others were answered
};

}  // namespace doppler
