// Keys and values of every attention layer, in f16. A windowed layer keeps a ring of its window; a global one keeps the
// whole context. Per kv head, keys lie in tiles of 16 positions as [dim][16] (the last tile as narrow as it must be),
// values as [position][dim].
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "model/plan.h"

namespace doppler::cpu {

// A place for `capacity` positions; position p lies in slot p mod capacity.
struct KvStore {
  uint16_t* keys = nullptr;
  uint16_t* values = nullptr;
  int capacity = 0, kv_heads = 0, dim = 0;

  size_t elements() const {
    return static_cast<size_t>(capacity) * static_cast<size_t>(kv_heads) * static_cast<size_t>(dim);
  }
  int tiles() const { return (capacity + kKeyTile - 1) / kKeyTile; }
  int pitch(int tile) const { return capacity - tile * kKeyTile < kKeyTile ? capacity - tile * kKeyTile : kKeyTile; }

  // Rounds one position's keys and values [kv_heads · dim] to f16 and writes them to a slot. scratch: dim elements.
  void store(const Kernels& kernels, int slot, const float* k, const float* v, uint16_t* scratch) const;
  // Copies a slot of another store with the same heads.
  void copy_slot(int slot, const KvStore& from, int from_slot) const;
  // Tile `t` of a head when the store holds positions up to base + newest (and at least base).
  KeyTile tile(int head, int t, int base, int newest) const;
};

class KvCache {
 public:
  // Room for `context` positions, and for `block` fresh ones of a windowed layer that has not stored them yet.
  KvCache(const Plan& plan, int context, int block);

  const KvStore& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  bool is_ring(int index) const { return layers_[static_cast<size_t>(index)].capacity < context_; }
  const KvStore& fresh(int index) const { return fresh_[static_cast<size_t>(index)]; }
  size_t bytes() const { return memory_.size(); }

 private:
  int context_;
  std::vector<KvStore> layers_, fresh_;  // fresh stores share one memory
  Memory memory_, fresh_memory_;
};

}  // namespace doppler::cpu
