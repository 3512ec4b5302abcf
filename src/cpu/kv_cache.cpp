#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace doppler::cpu {

void KvStore::place(std::byte* memory) {
  key_scales = reinterpret_cast<float*>(memory);
  value_scales = key_scales + scales();
  keys = reinterpret_cast<int16_t*>(value_scales + scales());
  values = keys + elements();
}

void KvStore::store(const Kernels& kernels, int cell, const float* k, const float* v, int16_t* scratch) const {
  const int t = cell / kKeyTile, width = pitch(t), lane = cell % kKeyTile;
  const size_t head_elements = static_cast<size_t>(capacity) * static_cast<size_t>(dim);
  for (int h = 0; h < kv_heads; ++h) {
    const size_t head = static_cast<size_t>(h) * head_elements;
    const size_t scale = static_cast<size_t>(h * tiles() * kKeyTile + cell);
    key_scales[scale] = kernels.to_i16(k + h * dim, scratch, dim);
    int16_t* key = keys + head + static_cast<size_t>(t) * kKeyTile * static_cast<size_t>(dim) + lane;
    for (int d = 0; d < dim; ++d) key[d * width] = scratch[d];
    int16_t* value = values + head + static_cast<size_t>(cell) * static_cast<size_t>(dim);
    value_scales[scale] = kernels.to_i16(v + h * dim, value, dim);
  }
}

void KvStore::copy_cell(int cell, const KvStore& from, int from_cell) const {
  const size_t d_count = static_cast<size_t>(dim);
  const int t = cell / kKeyTile, width = pitch(t), from_t = from_cell / kKeyTile, from_width = from.pitch(from_t);
  for (int h = 0; h < kv_heads; ++h) {
    const size_t head = static_cast<size_t>(h) * static_cast<size_t>(capacity) * d_count;
    const size_t from_head = static_cast<size_t>(h) * static_cast<size_t>(from.capacity) * d_count;
    int16_t* key = keys + head + static_cast<size_t>(t) * kKeyTile * d_count + cell % kKeyTile;
    const int16_t* from_key =
        from.keys + from_head + static_cast<size_t>(from_t) * kKeyTile * d_count + from_cell % kKeyTile;
    for (int d = 0; d < dim; ++d) key[d * width] = from_key[d * from_width];
    std::memcpy(values + head + static_cast<size_t>(cell) * d_count,
                from.values + from_head + static_cast<size_t>(from_cell) * d_count, d_count * sizeof(int16_t));
    const size_t scale = static_cast<size_t>(h * tiles() * kKeyTile + cell);
    const size_t from_scale = static_cast<size_t>(h * from.tiles() * kKeyTile + from_cell);
    key_scales[scale] = from.key_scales[from_scale];
    value_scales[scale] = from.value_scales[from_scale];
  }
}

KeyTile KvStore::tile(int head, int t, int base, int newest, int low, int high) const {
  const size_t d_count = static_cast<size_t>(dim);
  const size_t start =
      static_cast<size_t>(head) * static_cast<size_t>(capacity) * d_count + static_cast<size_t>(t) * kKeyTile * d_count;
  KeyTile tile;
  tile.keys = keys + start;
  tile.values = values + start;
  const size_t scale = static_cast<size_t>((head * tiles() + t) * kKeyTile);
  tile.key_scales = key_scales + scale;
  tile.value_scales = value_scales + scale;
  tile.pitch = pitch(t);
  // The cell that holds `newest`, and how old a cell's position is going round from there.
  const int newest_cell = newest % capacity;
  for (int i = 0; i < kKeyTile; ++i) {
    const int cell = t * kKeyTile + i;
    const int age = cell <= newest_cell ? newest_cell - cell : newest_cell - cell + capacity;
    const int position = base + newest - age;
    tile.positions[i] = i < tile.pitch && age <= newest && position >= low && position <= high ? position : -1;
  }
  return tile;
}

KvCache::KvCache(const Plan& plan, int context, int block) {
  size_t bytes = 0, staging_bytes = 0;
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op) continue;
    if (layers_.size() <= static_cast<size_t>(op->layer)) layers_.resize(static_cast<size_t>(op->layer) + 1);
    Layer& layer = layers_[static_cast<size_t>(op->layer)];
    layer.store.capacity = op->window > 0 ? std::min(op->window, context) : context;
    layer.store.kv_heads = op->kv_heads;
    layer.store.dim = op->head_dim;
    if (layer.store.capacity < context) {
      layer.kind = layer.store.capacity % kUnitKeys == 0 ? KvKind::kRing : KvKind::kOddRing;
    }
    layer.staging = layer.store;
    layer.staging.capacity = (layer.kind == KvKind::kOddRing ? layer.store.capacity : 0) + kUnitKeys + block;
    bytes += layer.store.bytes();
    if (layer.kind != KvKind::kWhole) staging_bytes = std::max(staging_bytes, layer.staging.bytes());
  }
  memory_ = Memory::large(bytes, "the context");
  staging_memory_ = Memory(staging_bytes, "a block of fresh keys and values");
  std::byte* next = memory_.data();
  for (Layer& layer : layers_) {
    layer.store.place(next);
    next += layer.store.bytes();
    layer.staging.place(staging_memory_.data());
  }
}

int KvCache::staging_first(int layer, int position) const {
  if (kind(layer) == KvKind::kRing) return position / kUnitKeys * kUnitKeys;
  return std::max(0, position - this->layer(layer).capacity + 1);
}

}  // namespace doppler::cpu
