// One stage on its rank: its executor, and the messages that it runs.
#pragma once

#include <memory>
#include <vector>

#include "cluster/pipeline.h"
#include "cluster/stage_messages.h"

namespace doppler {

// What ranks must agree on before they run, as the first rank decided it.
struct Division {
  std::vector<int> borders = {};    // [ranks + 1], layers
  std::vector<size_t> blocks = {};  // by group of the whole plan's layout
  uint64_t states = 0;
  int page_tokens = 0, context = 0;
  int rows = 0;  // of a batch at most: a backend runs them in one pass, since a state is kept only behind the last
};

class Stage {
 public:
  // Of `plan`, the whole one, what `rank` runs; page_tokens: its own backend's.
  Stage(const Plan& plan, const Division& division, int rank, int page_tokens, const StageBackend& backend);

  Executor& executor() const { return *executor_; }
  bool last() const { return plan_.steps.back().logits_only; }
  Built built(const Weights& weights) const;

  // Runs a batch on the rows of the stage before (none where this is the first). Returns the rows for the next stage,
  // or the logits that were asked for, for Logits::kBest, too.
  std::span<const float> run(const StageBatch& batch, std::span<const float> input);

  // The last stage's kResult: takes what Logits::kBest asks for out of the logits, [rows, vocab].
  void answer(const StageBatch& batch, std::span<const float> logits, Writer& to) const;

 private:
  const Plan plan_;
  const BlockMap map_;
  std::function<int32_t(std::span<const float>)> choose_;
  std::unique_ptr<Executor> executor_;
};

// What this rank can do, seen from how long a token takes in a layer that may become its own.
Ability measure(const Plan& plan, const Weights& weights, int context, int rank, int ranks,
                const StageBackend& backend);

// Equal for the same plan over weights of the same types.
uint64_t digest_of(const Plan& plan, const Weights& weights);

size_t width_of(const Plan& plan, int value);

}  // namespace doppler
