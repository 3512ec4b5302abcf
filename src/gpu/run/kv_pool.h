// The bytes of the cache on the GPU: every layer has a buffer of pages, as many as its group has blocks, so that no
// layer takes more than one binding. What the sequence that runs holds lies behind DecodeState, where kernels find it.
#pragma once

#include <vector>

#include "gpu/ops/attention.h"
#include "gpu/ops/state.h"
#include "model/kv_cache.h"
#include "model/plan.h"
#include "model/state_layout.h"

namespace doppler::gpu {

// Tokens that one submit may decode at most.
inline constexpr int kMaxDecodeBatch = 64;

struct CacheSize {
  int context = 0, block = 0;  // tokens of a sequence, and of one run, at most
  int sequences = 1;           // of the whole context, that there is room for…
  uint64_t memory = 0;         // …unless this is not 0: bytes of all pages
};

// The shape of a plan's attention step; its pages are the pool's affair.
AttentionShape shape_of(const Attention& op);

struct LayerCache {
  AttentionShape shape;
  Buffer buffer;  // kv_bytes(shape)
};

class KvPool {
 public:
  // Fails (kUsage) where there is no room for a block of tokens.
  KvPool(Device& device, const Plan& plan, const CacheSize& size);

  KvCache& cache() { return cache_; }
  const std::vector<LayerCache>& layers() const { return layers_; }
  uint64_t bytes() const;

  // By number: all copies of that state, and which of them the sequence that was shown last goes on from.
  const Buffer& states(int number) const { return states_[static_cast<size_t>(number)]; }
  const Buffer& places() const { return places_; }

  // DecodeState, and the pages of the sequence that was shown last.
  const Buffer& state() const { return state_; }
  void set_state(const DecodeState& state) { device_.write(state_, 0, std::as_bytes(std::span(&state, 1))); }

  // After KvCache::reserve and before anything is written there: copies what became two, and shows the kernels the
  // sequence's pages.
  void show(const Sequence& sequence);
  // The same of its state, where `tokens` more will be run at once.
  void show_state(const Sequence& sequence, int tokens);

  // The same for programs that run several tokens, a column each, from a state of its own: State with how many columns
  // there are as its position, which of them make logits as its token (the first) and draw (how many), and from its
  // pages on the columns' positions, their tokens, and their pages. There is room for column_room() columns;
  // make_column_room() makes more, in another buffer.
  struct Column {
    const Sequence* sequence;
    int position;
    int32_t token;
  };
  void make_column_room(uint32_t columns);
  void show_columns(std::span<const Column> columns, size_t first_logits, size_t logits);
  uint32_t column_room() const { return column_room_; }
  const Buffer& column_state() const { return column_state_; }
  uint32_t first_column_token() const { return kStateWords + column_room_; }  // u32 of column_state()
  AttentionColumns attention_columns(uint32_t columns, bool together) const {
    return {columns, 2 * column_room_, static_cast<uint32_t>(members_.size() * table_), together};
  }

 private:
  static constexpr uint32_t kStateWords = sizeof(DecodeState) / 4;
  void copy_pages();
  // The pages of a sequence in tables as kernels have them; returns which entries changed.
  KvCache::Range update_tables(const Sequence& sequence, std::span<uint32_t> tables) const;

  Device& device_;
  const KvLayout layout_;
  const StateLayout state_layout_;
  std::vector<LayerCache> layers_;
  std::vector<std::vector<int>> members_;  // layers by group
  std::vector<size_t> blocks_;             // by group
  KvCache cache_;
  Buffer state_;
  size_t table_ = 0;              // entries of a group's
  std::vector<uint32_t> tables_;  // [group][table_], as the GPU has them
  std::vector<Buffer> states_;    // by number, [copies]
  Buffer places_;                 // StatePlaces
  Buffer between_;                // a page on its way: WebGPU copies from one buffer to another only
  uint32_t column_room_ = 0;
  std::vector<uint32_t> column_tables_;  // [column][group][table_]
  Buffer column_state_;
};

}  // namespace doppler::gpu
