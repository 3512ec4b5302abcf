// One token from its id to the choice of the next, in as few dispatches as the fusions allow (five or six per layer).
// The recording is made once and replayed for every token: what changes lies in DecodeState.
//
// Or many tokens, a column each: the same groups of steps, but x is made ready once for all workgroups, and one pass
// over the weights serves all columns. Each has the bits it has alone.
#pragma once

#include <optional>

#include "gpu/ops/project.h"
#include "gpu/ops/sample.h"
#include "gpu/run/gpu_context.h"
#include "gpu/run/step_program.h"
#include "gpu/run/tap.h"
#include "model/sampling.h"

namespace doppler::gpu {

// A program of columns.
struct DecodeColumns {
  uint32_t most = 0;      // 0: of one token
  uint32_t logits = 0;    // columns that can make logits at once
  bool best = false;      // of these only the likeliest token is wanted
  bool together = false;  // several columns may be tokens of one sequence, in order
  auto operator<=>(const DecodeColumns&) const = default;
};

class DecodeProgram {
 public:
  static constexpr int kKeptTokens = 4096;  // that can be chosen before the state's count goes back to zero

  // Can this device run the fused kernels with this model's shapes?
  static bool possible(const GpuContext& context);
  // And for columns? Then `possible`, too.
  static bool possible_for_columns(const GpuContext& context);
  // Columns that one binding holds of everything but logits.
  static uint64_t max_columns(const GpuContext& context);

  // Without sampling nothing is chosen: the logits are kept, and DecodeState stays as it is. What tapped steps (null:
  // none) make is kept for each token. The token takes the same fused way; what a fusion does not store is recomputed
  // from what the fusion read.
  //
  // The sequence is one that was shown (KvPool::show).
  DecodeProgram(GpuContext& context, const std::optional<Sampling>& sampling, const TapSteps* tapped = nullptr);
  // The columns are those of KvPool::show_columns.
  DecodeProgram(GpuContext& context, const DecodeColumns& columns)
      : DecodeProgram(context, columns.best ? std::optional<Sampling>(Sampling{}) : std::nullopt, nullptr, columns) {}

  // The text that a repetition penalty looks at, up to the token that runs next; tokens chosen from there on are added
  // by the kernels.
  void set_text(std::span<const int32_t> before, int32_t token);

  Recording& recording() { return recording_; }
  const std::optional<Sampling>& sampling() const { return sampling_; }
  const Buffer& logits() const { return value(c_.plan.steps.back().output); }  // [columns that make some, vocab]
  const Buffer& out_tokens() const { return out_tokens_; }  // kKeptTokens of them, or one of each such column
  const DecodeTaps& taps() const { return taps_; }

 private:
  DecodeProgram(GpuContext& context, const std::optional<Sampling>& sampling, const TapSteps* tapped,
                const DecodeColumns& columns);
  bool of_columns() const { return columns_.most > 0; }
  void make_value_buffers();
  void make_choice_buffers();
  void make_column_buffers();
  BatchColumns batch_columns(bool last = false) const {
    return {c_.kv.column_state(), last ? columns_.logits : columns_.most, last};
  }
  void project_columns(const std::string& step, const Weight& weight, const BoundBuffer& values,
                       const Epilogue& epilogue, const Buffer& y);
  void record_group(size_t index);
  void project_norm(size_t index);
  void attention(const FusedGroup& group);
  void merge(const FusedGroup& group);
  void experts_up(const FusedGroup& group);
  void experts_down(const FusedGroup& group);
  void single(const Step& step, bool stored);
  void record_recomputed();
  bool only_best() const;  // is the likeliest token all that anybody wants of the logits?
  void choose(const BoundBuffer& logits);
  bool leaves_int8(size_t index) const;  // the group's result, for the projection that follows and nobody else
  const Buffer& value(int v) const;
  const Buffer& qkv(int layer) const;
  const Buffer& partials(int layer) const;
  const std::string& name(const FusedGroup& group) const;  // of its last step

  GpuContext& c_;
  const DecodeColumns columns_;
  const uint32_t rows_;  // of values
  const std::optional<Sampling> sampling_;
  Recording recording_;
  const std::vector<FusedGroup>& groups_;
  const DecodeTaps taps_;
  BufferPlan plan_;
  std::vector<Buffer> buffers_;
  Buffer qkv_, partials_, between_, spare_, out_tokens_, seen_, pairs_, bins_, list_;
  uint32_t pair_count_ = 0;
  Buffer logits_, column_values_, column_factors_;  // of columns
  std::map<int, Buffer> own_partials_;              // of layers whose attention is tapped
  std::vector<uint32_t> splits_;                    // by layer
  std::unique_ptr<ExpertMemory> expert_memory_;     // of experts that are recomputed for taps
};

}  // namespace doppler::gpu
