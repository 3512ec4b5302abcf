// A model whose layers run on several ranks, one stage behind the other. The first rank keeps the books of the cache,
// runs the first stage and is an Executor like any other; the others run theirs as messages come. A message says all
// that a stage must know: tokens, phases, the blocks of each sequence and the rows of the stage before.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cluster/stages.h"
#include "cluster/transport.h"
#include "model/executor.h"

namespace doppler {

// What a rank runs its stage with.
struct StageBackend {
  std::function<std::unique_ptr<Executor>(const Plan& plan, const ExecutorOptions& options)> make;
  // The likeliest token of a row of logits, as Logits::kBest gives it.
  std::function<int32_t(std::span<const float> logits)> choose;
  // Threads, device and the like; what concerns the cache is the first rank's.
  ExecutorOptions options;
  double speed = 0;              // stated; 0: measured
  uint64_t memory = UINT64_MAX;  // bytes that weights and cache may take
};

// Bytes that go from one stage to the next for a batch, beside those of Transport.
struct WireItem {
  int tokens = 0;
  int table_entries = 0;  // of all groups of the cache
};
size_t wire_bytes(std::span<const WireItem> items, int groups, int hidden, int copies = 0);

// The first rank's. All must outlive it; one at a time. `about` gets a line for people for each rank.
std::unique_ptr<Executor> make_pipeline(Transport& transport, const ModelConfig& config, const Plan& plan,
                                        const Weights& weights, StageBackend backend,
                                        const std::function<void(const std::string&)>& about = {});

// Any other rank's: returns when the first says that it is over.
void run_stages(Transport& transport, const Plan& plan, const Weights& weights, const StageBackend& backend);
// What the first rank says then.
void end_stages(Transport& transport);

}  // namespace doppler
