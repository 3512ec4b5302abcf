// Running a Program's nodes over one pass of tokens. Every thread of the pool calls run_node for every node; work
// inside a node is handed out piece by piece, and what a piece of work computes does not depend on who does it, so
// results are the same for any number of threads.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "base/threads.h"
#include "cpu/kv_pages.h"
#include "cpu/program.h"
#include "model/state_layout.h"

namespace doppler::cpu {

// Query rows (tokens · heads of a group) that one piece of attention holds, or one token's group where that is more.
inline constexpr int kAttendRows = 64;
// Rows of a matrix that a thread takes at once when tokens are few.
inline constexpr int kMaxChunkRows = 512;

// One thread's own memory; sizes in scratch.cpp.
struct Scratch {
  LinearScratch linear;
  float* c[2];          // [kMaxTiles][block][kTileRows] or [kMaxGemvTokens][kMaxChunkRows], two products of a glu
  const void** inputs;  // [block · experts per token]
  std::byte* local;     // buffers of one row
  float* queries;       // attention: [query rows][dim], scaled
  float* mixed;         // [query rows][dim]
  float* scores;
  float* highest;  // [query rows], and so on
  float* total;
  int32_t* first;
  int32_t* last;
  int16_t* rounded;        // [dim]
  int32_t* expert_start;   // [experts + 1]
  int32_t* expert_tokens;  // [block · k]: row · k + place
};

// The rows of one sequence in a pass: tokens behind each other.
struct PassItem {
  const Sequence* sequence = nullptr;
  int position = 0;                      // of its first token here
  int first_row = 0, rows = 0;           // of the pass
  int first_logit = 0, logit_count = 0;  // of the rows whose logits are asked for: its last ones
  uint32_t state_from = KvCache::kNoState, state_to = KvCache::kNoState;
};

// A row whose sequence has adapters.
struct AdaptedRow {
  int row = 0;
  std::span<const AdapterUse> uses;
};

// A pass over the weights: rows of tokens, those of Phase::kDecode first. Some of them are asked for logits; those come
// in the order of their rows. What multiplies with a row, and how its activations are held, depends on the row's phase
// alone, so that a result is the same whatever else is in the pass.
struct Pass {
  std::vector<PassItem> items;
  std::vector<std::span<const float>> inputs;       // by item: the rows that a stage is handed
  std::vector<int32_t> tokens, positions, item_of;  // by row
  std::vector<int32_t> logit_rows;                  // rows that are asked for logits
  std::vector<int32_t> logit_places;                // where each of those goes, in rows of RunState::logits
  int decode_rows = 0;                              // rows of Phase::kDecode
  int decode_logits = 0;                            // rows asked for logits whose rows are of Phase::kDecode
  // … and those that are computed as if they were where nothing but logits depends on it: the last token of a prompt.
  int gemv_logits = 0;
  // Rows with adapters, those with the same ones behind each other: of the pass, and of those that are asked for
  // logits.
  std::vector<AdaptedRow> adapted, adapted_logits;

  void clear() {
    items.clear();
    inputs.clear();
    for (std::vector<int32_t>* list : {&tokens, &positions, &item_of, &logit_rows, &logit_places}) list->clear();
    adapted.clear();
    adapted_logits.clear();
    decode_rows = decode_logits = gemv_logits = 0;
  }
};

struct RunState {
  const Kernels* kernels = nullptr;
  const Plan* plan = nullptr;
  Program* program = nullptr;
  const KvCache* cache = nullptr;
  const KvPages* pages = nullptr;
  std::byte* arena = nullptr;
  float* partials = nullptr;  // attention of single queries, unit by unit
  int context = 0, threads = 1;
  const Pass* pass = nullptr;
  float* logits = nullptr;
  const StateLayout* state_layout = nullptr;
  float* states = nullptr;  // [KvCache::states()] of state_layout->total

  int rows(bool logit_rows) const {
    return static_cast<int>(logit_rows ? pass->logit_rows.size() : pass->tokens.size());
  }
  const std::vector<AdaptedRow>& adapted(bool logit_rows) const {
    return logit_rows ? pass->adapted_logits : pass->adapted;
  }
  // The pass's row of a node's row.
  int pass_row(int row, bool logit_rows) const { return logit_rows ? pass->logit_rows[static_cast<size_t>(row)] : row; }

  // Of a node's rows, how many (the first ones) are multiplied by GEMV when they are read from `buffer`; the others by
  // GEMM. Where both read the same numbers the faster does all.
  int gemv_rows(bool node_logit_rows, int buffer, Input input) const {
    const int count = rows(node_logit_rows);
    if (batch_invariant(input)) return count < kMinGemmTokens ? count : 0;
    if (!node_logit_rows) return pass->decode_rows;
    return program->buffers[static_cast<size_t>(buffer)].logit_rows ? pass->gemv_logits : pass->decode_logits;
  }

  // Row `row` of a node with these rows, in a buffer that may have more.
  template <class T>
  T* at(int buffer, int row, bool node_logit_rows, const Scratch& scratch) const {
    const Buffer& s = program->buffers[static_cast<size_t>(buffer)];
    if (s.local) return reinterpret_cast<T*>(scratch.local + s.offset);
    if (node_logit_rows && !s.logit_rows) row = pass->logit_rows[static_cast<size_t>(row)];
    std::byte* base = arena + s.offset;
    if (s.outside) {
      base = reinterpret_cast<std::byte*>(logits);
      row = pass->logit_places[static_cast<size_t>(row)];
    }
    return reinterpret_cast<T*>(base + static_cast<size_t>(row) * s.row_bytes);
  }
};

using Counter = std::atomic<int>;

// Hands out the pieces of a node. Each thread begins with a own_range of its own, so that it reads memory in order, and
// helps the others when it is done.
class Work {
 public:
  // One counter per thread, `pitch` counters apart, all zero before the node.
  Work(Counter* taken, size_t pitch, int thread, int threads)
      : taken_(taken), pitch_(pitch), thread_(thread), threads_(threads) {}

  // The next of `pieces`, or -1 when all are taken. The number of pieces is the same at every call.
  int next(int pieces) {
    for (; helped_ < threads_; ++helped_) {
      const int owner = (thread_ + helped_) % threads_;
      const Range range = own_range(pieces, owner, threads_);
      const long piece =
          range.begin + taken_[static_cast<size_t>(owner) * pitch_].fetch_add(1, std::memory_order_relaxed);
      if (piece < range.end) return static_cast<int>(piece);
    }
    return -1;
  }

  // The pieces that a thread begins with.
  static Range own_range(int pieces, int thread, int threads) { return split_range(pieces, thread, threads); }
  // Does the piece after this one belong to the same own_range of this thread?
  bool continues(int pieces, int piece) const {
    const Range own = own_range(pieces, thread_, threads_);
    return piece >= own.begin && piece + 1 < own.end;
  }

 private:
  Counter* taken_;
  size_t pitch_;
  int thread_, threads_;
  int helped_ = 0;  // threads whose pieces are all taken
};

// Is there nothing to do? A late quantize is for the rows that go on to a GEMM.
inline bool skipped(const RunState& state, const Node& node) {
  if (node.kind == NodeKind::kLora) return state.adapted(node.logit_rows).empty();
  if (!node.quantizes_late) return false;
  const Op& op = node.ops[0];
  const int rows = state.rows(node.logit_rows);
  return by_groups(op.input, state.gemv_rows(node.logit_rows, op.out, op.input) < rows);
}
// `next`: what this thread reads first in the next node that reads much, or null.
void run_node(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next);

void run_rows(const RunState& state, const Node& node, Work work, const Scratch& scratch);
void run_matmul(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next);
// What a thread begins with: a matmul node's weights for GEMV, an attend node's keys when there is one row. Null where
// that is not known.
const std::byte* first_weights(const Node& node, int thread, int threads);
const std::byte* first_keys(const RunState& state, const Node& node, int thread);
void run_experts(const RunState& state, const Node& node, Work work, const Scratch& scratch);
void run_attend(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next);
void run_lora(const RunState& state, const Node& node, Work work, const Scratch& scratch);
void run_state(const RunState& state, const Node& node, Work work, const Scratch& scratch);
void merge_row(const RunState& state, const Op& op, int row, const Scratch& scratch);

// Memory for one thread, and the places in it.
size_t scratch_bytes(const Program& program, const Plan& plan, int block);
Scratch make_scratch(const Program& program, const Plan& plan, int block, std::byte* memory);
size_t max_units(const Attention& a, int context);  // of keys that a token can see
// Single queries whose attention is split by units of keys, at most, and what their parts take.
inline constexpr int kMaxSplitQueries = 8;
size_t partial_floats(const Plan& plan, int context);

}  // namespace doppler::cpu
