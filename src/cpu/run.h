// Running a Program's nodes over one block of tokens. Every thread of the pool calls run_node for every node; work
// inside a node is handed out piece by piece, and what a piece of work computes does not depend on who does it, so
// results are the same for any number of threads.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "base/threads.h"
#include "cpu/kv_cache.h"
#include "cpu/program.h"

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

struct RunState {
  const Kernels* kernels = nullptr;
  const Plan* plan = nullptr;
  Program* program = nullptr;
  KvCache* cache = nullptr;
  std::byte* arena = nullptr;
  float* partials = nullptr;  // a single query's attention, unit by unit
  int context = 0, threads = 1;
  int min_gemm_tokens_packed = kMinGemmTokens;  // tokens from which tiles of packed weights pay

  std::span<const int32_t> tokens;  // of this block
  int position = 0;                 // of the block's first token
  int logit_count = 0;              // rows of logit_rows nodes: the last ones of the block
  float* logits = nullptr;          // where the first of them goes

  int rows(bool logit_rows) const { return logit_rows ? logit_count : static_cast<int>(tokens.size()); }
  int first_row(bool logit_rows) const { return static_cast<int>(tokens.size()) - rows(logit_rows); }

  // Are the rows of a buffer enough for a GEMM? How a row of activations is held, and what multiplies with it, depends
  // on that alone, even where a node needs only the last of them.
  bool uses_gemm(int buffer, Input input) const {
    const int from = batch_invariant(input) ? kMinGemmTokens : min_gemm_tokens_packed;
    return rows(program->buffers[static_cast<size_t>(buffer)].logit_rows) >= from;
  }

  // Row `row` of a node with these rows, in a buffer that may have more.
  template <class T>
  T* at(int buffer, int row, bool node_logit_rows, const Scratch& scratch) const {
    const Buffer& s = program->buffers[static_cast<size_t>(buffer)];
    if (s.local) return reinterpret_cast<T*>(scratch.local + s.offset);
    if (node_logit_rows && !s.logit_rows) row += first_row(true);
    std::byte* base = s.outside ? reinterpret_cast<std::byte*>(logits) : arena + s.offset;
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

// Is there nothing to do, at this number of tokens?
inline bool skipped(const RunState& state, const Node& node) {
  return node.quantizes_late && by_groups(node.ops[0].input, state.uses_gemm(node.ops[0].out, node.ops[0].input));
}
// `next`: what this thread reads first in the next node that reads much, or null.
void run_node(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next);

void run_rows(const RunState& state, const Node& node, Work work, const Scratch& scratch);
void run_matmul(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next);
// What a thread begins with: a matmul node's weights when tokens are few, an attend node's keys when there is one
// token. Null where that is not known.
const std::byte* first_weights(const Node& node, int thread, int threads);
const std::byte* first_keys(const RunState& state, const Node& node, int thread);
void run_experts(const RunState& state, const Node& node, Work work, const Scratch& scratch);
void run_attend(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next);
void merge_row(const RunState& state, const Op& op, int row, const Scratch& scratch);

// Memory for one thread, and the places in it.
size_t scratch_bytes(const Program& program, const Plan& plan, int block);
Scratch make_scratch(const Program& program, const Plan& plan, int block, std::byte* memory);
size_t max_units(const Attention& a, int context);  // of keys that a token can see
size_t partial_floats(const Plan& plan, int context);

}  // namespace doppler::cpu
