// Looking into a decode: what is asked for is written to rows inside the recording, and read after the submit.
#pragma once

#include "gpu/run/gpu_context.h"
#include "model/executor.h"

namespace doppler::gpu {

Variant choose_tap(const Capabilities& capabilities);

// What a tapped decode keeps beyond an untapped one. The token takes the same fused way, but what taps look at has
// buffers of its own until the token's end. Then a few dispatches write what was asked for to rows, one a token of a
// submit.
class DecodeTaps {
 public:
  // `tapped` null: nothing is kept.
  DecodeTaps(GpuContext& context, const TapSteps* tapped);

  // The buffer of a value, a layer's q, k and v, and a layer's attention or a group's product to be computed beside the
  // run; null where no tap needs it.
  const Buffer* value(int v) const { return find(Sight::Source::kValue, v); }
  const Buffer* qkv(int layer) const { return find(Sight::Source::kQkv, layer); }
  const Buffer* attention(int layer) const { return find(Sight::Source::kSplits, layer); }
  const Buffer* beside(int group) const { return find(Sight::Source::kBeside, group); }

  // Steps to be run by themselves, in order, for values that are looked at.
  const std::vector<int>& alone() const { return alone_; }

  // To be recorded when all of these are there, and before the next token is chosen.
  void record(Recording& recording) const;

  int most_tokens() const { return most_tokens_; }  // of a submit: what there is room for

  // Hands the rows of `count` tokens from `position` on to the tap, token by token in the plan's order.
  void hand_over(int count, int position, const Tap& tap) const;

 private:
  using Key = std::pair<Sight::Source, int>;

  // One dispatch: a few sources, all that is asked for of them, and the rows it goes to. Dispatches that write to
  // different buffers need not wait for each other.
  struct Look {
    std::vector<Key> sources;
    int rope = -1;  // the one it may turn by
    std::vector<size_t> sights;
    uint32_t first_part = 0, most_groups = 0, stride = 0;
    Buffer rows;  // f32 [most_tokens, stride]
  };
  struct Place {
    size_t look = 0;
    uint32_t offset = 0;  // in its row
  };

  const Buffer* find(Sight::Source source, int of) const;
  uint64_t source_floats(const Key& key) const;
  void keep(const Key& key);
  void share_looks();
  void write_table();
  uint32_t width(const Sight& sight) const { return static_cast<uint32_t>(c_.width(c_.step(sight.step).output)); }
  int rope_of(const Sight& sight) const;

  GpuContext& c_;
  std::vector<Sight> sights_;  // in the plan's order
  std::vector<Place> places_;  // of these
  std::vector<int> alone_;
  std::map<Key, Buffer> sources_;
  std::vector<Look> looks_;
  Buffer table_;  // see ops/tap.wgsl
  int most_tokens_ = kMostDecodeBatch;
  Buffer readback_;
};

}  // namespace doppler::gpu
