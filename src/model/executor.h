// What a backend offers: it runs a Plan over a batch of tokens of many sequences, in one pass over the weights. It
// keeps nothing between calls but the bytes of the pages that the sequences hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/adapters.h"
#include "model/kernel_wishes.h"
#include "model/kv_cache.h"
#include "model/plan.h"
#include "model/sampling.h"
#include "model/weights.h"

namespace doppler {

// Where the time of a decoded token goes.
struct DecodeProfile {
  struct Dispatch {
    std::string step;  // its name, the last of them where several are fused
    double begin_ns = 0, end_ns = 0;
  };
  std::vector<Dispatch> dispatches;                  // of one token, with a clock around each
  double gpu_ns = 0;                                 // a token among others, with no clock between
  double encode_ns = 0, submit_ns = 0, read_ns = 0;  // on the host, a token
  int batch = 0;                                     // tokens a submit, for these
};

// kBest: not the logits but the likeliest token alone (ties: the lowest id), see Executor::can_choose.
enum class Logits : uint8_t { kNone, kLast, kAll, kBest };

// Tokens that a batch appends to one sequence. What is computed for
// this one depends on its own tokens, phase and wish alone.
struct BatchItem {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;
  Phase phase = Phase::kDecode;
  Logits want = Logits::kNone;
  std::span<const float> input = {};  // [tokens, width]: the rows of Plan::input, where the plan is a stage
};

// Sees a step's output, in the order of the plan. data is [tokens, width]; its first row is position `position`.
using Tap = std::function<void(const Step& step, std::span<const float> data, int tokens, int position)>;
// Which steps a tap looks at, by name; empty: all of them.
using TapSteps = std::set<std::string>;
inline bool taps(const TapSteps& steps, const Step& step) { return steps.empty() || steps.count(step.name) > 0; }

struct StageCache {
  std::vector<size_t> blocks;  // by group of the stage's own layout, but for that of states
  size_t states = 0;
};

// What an executor has asked of its device since it was made. All zero where there is no device.
struct DeviceCounters {
  uint64_t submits = 0, dispatches = 0;
  uint64_t bytes = 0;                           // in live buffers
  uint64_t expert_hits = 0, expert_misses = 0;  // matrices of experts that were there, or had to be fetched
};

struct ExecutorOptions {
  int context = 0;       // tokens of a sequence at most
  int threads = 0;       // 0: one per core this process may run on
  int block = 0;         // tokens of one prefill block; 0: the backend's choice
  int device = -1;       // which GPU, as `doppler devices` counts them; -1: the first
  bool checked = false;  // a GPU checks every access of a kernel against its buffer's bounds: for tests
  // Bytes a model may take of the GPU's memory; 0: no bound. Experts that do not fit are fetched when they are chosen,
  // so the weights must then live as long as the executor.
  uint64_t gpu_memory = 0;
  // Bytes of keys and values that all sequences share; 0: as much as `sequences` of `context` tokens need.
  uint64_t cache_memory = 0;
  int sequences = 1;
  bool alone = false;  // in this process, even where the program runs as several ranks
  // Adapters that sequences may have; those of a sequence that is started without saying are Adapters::standard.
  std::shared_ptr<const Adapters> adapters = {};
  // The executor of a stage: another cache keeps the books, and these are its blocks (KvCache::Options::follows).
  std::optional<StageCache> stage = {};
  KernelWishes kernels = {};  // checked against kernel_kinds() when the executor is made
};

// What an executor was made of, for whoever explains what it computed. All of it outlives the executor.
struct ModelParts {
  const ModelConfig* config = nullptr;
  const Plan* plan = nullptr;
  const Weights* weights = nullptr;
  std::shared_ptr<const Adapters> adapters = {};
};

// Fails unless every token is in the vocabulary and all of them fit behind `position` in the context.
void check_tokens(const ModelConfig& config, std::span<const int32_t> tokens, int position, int context);

// Fails unless an executor with these adapters (or null) has all that the sequence names.
void check_adapters(const Adapters* adapters, const Sequence& sequence);

// "token at 17", "prefill of 512 tokens at 0": what a pass over the weights is, for people.
std::string pass_name(Phase phase, size_t tokens, size_t sequences, int position);

// KvCache::reserve, or fails.
void reserve_room(KvCache& cache, Sequence& sequence, int tokens, int back = 0);

class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::string_view name() const = 0;  // "cpu", "ref", "webgpu"

  // Where sequences come from.
  virtual KvCache& cache() = 0;

  // Appends the items' tokens to their sequences, in as many passes as the backend likes; a sequence has one item at
  // most. Tokens of Phase::kDecode can be taken back by KvCache::truncate until the next run. Returns the logits asked
  // for, item by item, [rows, vocab], valid until the next call. Fails where the cache has no room (see
  // KvCache::reserve), with what ran in earlier passes appended.
  virtual std::span<const float> run(std::span<const BatchItem> batch) = 0;

  // How many batches may be on their way at once, so that all of a machine is busy. start() puts one on its way, no
  // sequence in two of them, and finish() returns what run() would for the one started first. The items' tokens must
  // live until then; with several lanes their sequences may be given back before.
  virtual int lanes() const { return 1; }
  virtual void start(std::span<const BatchItem> batch) { started_.assign(batch.begin(), batch.end()); }
  virtual std::span<const float> finish() { return run(started_); }

  // May items of one token in Phase::kDecode want Logits::kBest? Then run() leaves their choices in best(), in the
  // order of these items and as decode() gives them, and spares the logits their way to the host. Not of sequences with
  // adapters.
  virtual bool can_choose() const { return false; }
  virtual std::span<const int32_t> best() const { return {}; }

  // A prompt of fewer tokens than this is computed as decode does: there is nothing to gain by the numbers of prefill.
  virtual int min_prefill_tokens() const { return 1; }
  Phase phase_of_prompt(size_t tokens) const {
    return tokens < static_cast<size_t>(min_prefill_tokens()) ? Phase::kDecode : Phase::kPrefill;
  }

  // Runs `token` behind the sequence, chooses the next, runs that, … on the device, and returns the tokens chosen: at
  // most `count`, fewer where the context ends. The n-th choice is draw number draw + n. A choice among logits that
  // hold NaN or +∞ is the complement of a token, which is negative, and the last. Empty where this backend cannot
  // choose by itself; then the caller samples from run(). `more`: the caller means to go on from the last of
  // them, so that a device may begin with that while the caller looks at these.
  virtual std::vector<int32_t> decode(Sequence& sequence, int32_t token, int count, const Sampling& sampling,
                                      uint64_t draw, bool more = false);

  // Runs `token` a few times over, and the sequence goes on by one. Empty where the backend has no such clock.
  virtual DecodeProfile profile(Sequence& sequence, int32_t token);

  // Can steps be tapped at all?
  virtual bool can_tap() const { return true; }

  // Taps every step (null: none), of batches with one item. What a fused kernel never stores is computed for the tap
  // from what the kernel read.
  virtual void set_tap(Tap tap) = 0;

  // Taps some steps; where a backend can, the others keep their fusions and batches.
  virtual void set_tap_at(Tap tap, TapSteps steps);

  // Which kernel computed a tapped step in the last call, for people; empty where there is no choice.
  virtual std::string kernel_of(const Step& step) const;

  // What ExecutorOptions::kernels may name here; empty where there is nothing to choose.
  virtual std::vector<KernelKind> kernel_kinds() const;

  virtual DeviceCounters counters() const;

  virtual size_t context_bytes() const = 0;  // of all pages

  // Null pointers where nobody said.
  const ModelParts& model() const { return model_; }
  void set_model(const ModelParts& model) { model_ = model; }

 private:
  ModelParts model_;
  std::vector<BatchItem> started_;  // where one batch is all there can be
};

// One sequence of an executor that has no other: a prompt and what follows it, position by position.
class Context {
 public:
  explicit Context(Executor& executor) : executor_(executor), sequence_(executor.cache().start()) {}

  std::span<const float> forward(std::span<const int32_t> tokens, Logits want);
  std::vector<int32_t> decode(int32_t token, int count, const Sampling& sampling, uint64_t draw, bool more = false) {
    return executor_.decode(sequence_, token, count, sampling, draw, more);
  }
  DecodeProfile profile(int32_t token) { return executor_.profile(sequence_, token); }

  int position() const { return sequence_.length(); }
  void rewind(int position) { executor_.cache().truncate(sequence_, position); }
  void reset();
  void release() { sequence_ = Sequence(); }  // its pages; nothing can be run after that

  Executor& executor() { return executor_; }
  Sequence& sequence() { return sequence_; }

 private:
  Executor& executor_;
  Sequence sequence_;
};

}  // namespace doppler
