// Keys and values of every attention layer, in 16 bits (see KeyTile). A windowed layer keeps a ring of its window; a
// global one keeps the whole context. Per kv head, keys lie in tiles of 16 positions as [dim][16] (the last tile as
// narrow as it must be), values as [position][dim].
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "model/plan.h"

namespace doppler::cpu {

// A place for `capacity` positions; position p lies in cell p mod capacity.
struct KvStore {
  int16_t* keys = nullptr;
  int16_t* values = nullptr;
  float* key_scales = nullptr;  // [kv_heads][tiles · 16]
  float* value_scales = nullptr;
  int capacity = 0, kv_heads = 0, dim = 0;

  size_t elements() const {
    return static_cast<size_t>(capacity) * static_cast<size_t>(kv_heads) * static_cast<size_t>(dim);
  }
  size_t scales() const { return static_cast<size_t>(kv_heads) * static_cast<size_t>(tiles()) * kKeyTile; }
  size_t bytes() const { return 2 * (elements() * sizeof(int16_t) + scales() * sizeof(float)); }
  // Takes its memory of bytes() from `memory`, aligned to 4 bytes.
  void place(std::byte* memory);

  int tiles() const { return (capacity + kKeyTile - 1) / kKeyTile; }
  int pitch(int tile) const { return capacity - tile * kKeyTile < kKeyTile ? capacity - tile * kKeyTile : kKeyTile; }

  // Rounds one position's keys and values [kv_heads · dim] and writes them to a cell. scratch: dim elements.
  void store(const Kernels& kernels, int cell, const float* k, const float* v, int16_t* scratch) const;
  // Copies a cell of another store with the same heads.
  void copy_cell(int cell, const KvStore& from, int from_cell) const;
  // Tile `t` of a head when the store holds positions up to base + newest; keys outside [low, high] count as missing.
  KeyTile tile(int head, int t, int base, int newest, int low, int high) const;
};

// How a layer keeps its keys.
enum class KvKind : uint8_t {
  kWhole,    // every position of the context
  kRing,     // the window, in whole units: a single token is stored and attended to in place
  kOddRing,  // the window, in no whole units: keys are laid out in order before each use
};

class KvCache {
 public:
  KvCache(const Plan& plan, int context, int block);

  KvKind kind(int layer) const { return at(layer).kind; }
  const KvStore& layer(int index) const { return at(index).store; }
  size_t bytes() const { return memory_.size(); }

  // Where a block's keys wait while the ring is still read, in the order of their positions: cell 0 is the position
  // staging_base(). Keys before the block that share a unit with it (all that are seen, for an odd ring) are copied
  // there from the ring first: those from staging_first() on.
  bool uses_staging(int layer, int tokens) const {
    return kind(layer) == KvKind::kOddRing || (kind(layer) == KvKind::kRing && tokens > 1);
  }
  const KvStore& staging(int layer) const { return at(layer).staging; }
  int staging_first(int layer, int position) const;
  int staging_base(int layer, int position) const { return staging_first(layer, position) / kUnitKeys * kUnitKeys; }

 private:
  struct Layer {
    KvStore store, staging;
    KvKind kind = KvKind::kWhole;
  };
  const Layer& at(int index) const { return layers_[static_cast<size_t>(index)]; }

  std::vector<Layer> layers_;
  Memory memory_, staging_memory_;  // all layers share the staging store
};

}  // namespace doppler::cpu
