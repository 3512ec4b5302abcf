// What ranks say to each other.
#pragma once

#include <optional>

#include "cluster/wire.h"
#include "model/executor.h"

namespace doppler {

enum class MessageKind : uint32_t {
  kOpen,   // first rank to each: a model and its context; answered by Ability
  kStage,  // first rank to each: the borders of stages and the blocks of the cache; answered by Built
  kBatch,  // from stage to stage; the last answers the first rank with kResult
  kResult,
  kClose,  // from stage to stage: the model is done with
  kEnd,    // first rank to each: there will be no other
};

struct Opening {
  uint64_t digest = 0;  // of plan and weights: all ranks must have the same model
  int context = 0;
};
struct Ability {
  double speed = 0;
  uint64_t memory = 0;
  int page_tokens = 0;
};
struct Built {
  uint64_t weight_bytes = 0, cache_bytes = 0;
  int min_prefill_tokens = 1;
  bool phases_agree = false;
};

// Tokens of one sequence in a kBatch.
struct StageItem {
  Phase phase = Phase::kDecode;
  Logits want = Logits::kNone;  // of the whole model's logits
  KvCache::Place place;         // by the first rank's groups and blocks
  std::vector<int32_t> tokens;
};
struct StageBatch {
  uint64_t ticket = 0;
  std::vector<KvCache::BlockCopy> copies;  // before the batch
  std::vector<StageItem> items;
};

// The rows of the stage before follow the batch.
void write(Writer& to, const StageBatch& batch);
StageBatch read_batch(Reader& from);  // after the kind

// The first rank's groups and blocks as a stage's own cache has them: some groups are not there, and pages may be
// smaller.
class BlockMap {
 public:
  BlockMap(const KvLayout& all, const KvLayout& own);

  // What the stage's executor is made with, of the first rank's blocks by group.
  StageCache own_cache(std::span<const size_t> blocks, size_t states) const;
  KvCache::Place own_place(const KvCache::Place& place) const;
  void copy(const KvCache::BlockCopy& copy, KvCache& own) const;

 private:
  std::vector<int> group_of_;  // [own group]: the first rank's
  std::vector<bool> state_;    // [own group]
  int ratio_ = 1;              // own pages in one of the first rank's
};

}  // namespace doppler
