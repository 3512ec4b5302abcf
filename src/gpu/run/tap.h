// Taps of a fused decode: what is asked for is written to rows inside the recording, and read after the submit.
#pragma once

#include "gpu/run/gpu_context.h"
#include "model/executor.h"

namespace doppler::gpu {

Variant choose_tap(const Capabilities& capabilities);

// What a tapped decode keeps beyond an untapped one. The token takes the same fused way, but what taps want has
// buffers of its own until the token's end. Then a few dispatches write what was asked for to rows, one per token of a
// submit.
class DecodeTaps {
 public:
  // `tapped` null: nothing is kept.
  DecodeTaps(GpuContext& context, const TapSteps* tapped);

  // The buffer of a value, of a layer's q, k and v, of a layer's attention once it is merged, or of a group's product
  // that is recomputed; null where no tap needs it.
  const Buffer* value(int v) const { return find(TapSource::Kind::kValue, v); }
  const Buffer* qkv(int layer) const { return find(TapSource::Kind::kQkv, layer); }
  const Buffer* attention(int layer) const { return find(TapSource::Kind::kSplits, layer); }
  const Buffer* recomputed(int group) const { return find(TapSource::Kind::kRecomputed, group); }

  // Steps to be run once more by themselves, in order, for values that are tapped.
  const std::vector<int>& recomputed_steps() const { return recomputed_; }

  // To be recorded when all of these are there, and before the next token is chosen.
  void record(Recording& recording) const;

  int max_tokens() const { return max_tokens_; }  // of a submit: what there is room for

  // Hands the rows of `count` tokens from `position` on to the tap, token by token in the plan's order.
  void hand_over(int count, int position, const Tap& tap) const;

 private:
  using Key = std::pair<TapSource::Kind, int>;

  // One dispatch: a few sources, all that is asked for of them, and the rows it goes to. Dispatches that write to
  // different buffers need not wait for each other.
  struct TapDispatch {
    std::vector<Key> sources;
    int rope = -1;             // the one it may rotate by
    std::vector<size_t> taps;  // numbers in taps_
    uint32_t first_part = 0, max_groups = 0, stride = 0;
    Buffer rows;  // f32 [max_tokens, stride]
  };
  struct Place {
    size_t dispatch = 0;
    uint32_t offset = 0;  // in its row
  };

  const Buffer* find(TapSource::Kind kind, int of) const;
  uint64_t source_floats(const Key& key) const;
  void keep(const Key& key);
  void assign_dispatches();
  void write_table();
  uint32_t width(const TapSource& source) const { return static_cast<uint32_t>(c_.width(c_.step(source.step).output)); }
  int rope_of(const TapSource& source) const;

  GpuContext& c_;
  std::vector<TapSource> taps_;  // in the plan's order
  std::vector<Place> places_;    // of these
  std::vector<int> recomputed_;
  std::map<Key, Buffer> buffers_;
  std::vector<TapDispatch> dispatches_;
  Buffer table_;  // see ops/tap.wgsl
  int max_tokens_ = kMaxDecodeBatch;
  Buffer readback_;
};

}  // namespace doppler::gpu
