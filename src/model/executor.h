// What a backend offers: it runs a Plan over tokens and keeps the context (the KV cache) between calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

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

enum class Logits : uint8_t { kNone, kLast, kAll };

// Sees a step's output, in the order of the plan. data is [tokens, width]; its first row is position `position`.
using Tap = std::function<void(const Step& step, std::span<const float> data, int tokens, int position)>;
// Which steps a tap looks at, by name; empty: all of them.
using TapSteps = std::set<std::string>;
inline bool taps(const TapSteps& steps, const Step& step) { return steps.empty() || steps.count(step.name) > 0; }

// What an executor has asked of its device since it was made. All zero where there is no device.
struct DeviceCounters {
  uint64_t submits = 0, dispatches = 0;
  uint64_t bytes = 0;                           // in live buffers
  uint64_t expert_hits = 0, expert_misses = 0;  // matrices of experts that were there, or had to be fetched
};

struct ExecutorOptions {
  int context = 0;       // tokens to make room for
  int threads = 0;       // 0: one per core this process may run on
  int block = 0;         // tokens of one prefill block; 0: the backend's choice
  int device = -1;       // which GPU, as `doppler devices` counts them; -1: the first
  bool checked = false;  // a GPU checks every access of a kernel against its buffer's bounds: for tests
  // Bytes a model may take of the GPU's memory; 0: no bound. Experts that do not fit are fetched when they are chosen,
  // so the weights must then live as long as the executor.
  uint64_t gpu_memory = 0;
};

// Fails unless every token is in the vocabulary and all of them fit behind `position` in the context.
void check_tokens(const ModelConfig& config, std::span<const int32_t> tokens, int position, int context);

class Executor {
 public:
  virtual ~Executor() = default;

  virtual std::string_view name() const = 0;  // "cpu", "ref", "webgpu"

  // Runs the tokens at positions position() …, in blocks where the backend likes. Returns the logits asked for,
  // [1 or tokens, vocab], valid until the next call; empty for Logits::kNone.
  virtual std::span<const float> forward(std::span<const int32_t> tokens, Logits want) = 0;

  virtual int position() const = 0;  // tokens in the context so far
  virtual void reset() = 0;          // forget the context

  // Runs `token`, chooses the next, runs that, … on the device, and returns the tokens chosen: at most `count`, fewer
  // where the context ends. The n-th choice is draw number draw + n. Empty where this backend cannot choose by itself;
  // then the caller samples from forward(). `more`: the caller means to go on from the last of them, so that a device
  // may begin with that while the caller looks at these.
  virtual std::vector<int32_t> decode(int32_t token, int count, const Sampling& sampling, uint64_t draw,
                                      bool more = false);

  // Runs `token` a few times over, and the context goes on by one. Empty where the backend has no such clock.
  virtual DecodeProfile profile(int32_t token);

  // Forgets the tokens from `position` on; only as many as the last decode() ran.
  virtual void rewind(int position);

  // Taps every step (null: none). What a fused kernel never stores is computed for the tap from what the kernel read.
  virtual void set_tap(Tap tap) = 0;

  // Taps some steps; where a backend can, the others keep their fusions and batches.
  virtual void set_tap_at(Tap tap, TapSteps steps);

  // Which kernel computed a tapped step in the last call, for people; empty where there is no choice.
  virtual std::string kernel_of(const Step& step) const;

  virtual DeviceCounters counters() const;

  virtual size_t context_bytes() const = 0;  // the KV cache
};

}  // namespace doppler
