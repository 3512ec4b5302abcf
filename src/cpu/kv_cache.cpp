#include "cpu/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace doppler::cpu {

void KvStore::store(const Kernels& kernels, int slot, const float* k, const float* v, uint16_t* scratch) const {
  const int t = slot / kKeyTile, width = pitch(t), lane = slot % kKeyTile;
  const size_t head_elements = static_cast<size_t>(capacity) * static_cast<size_t>(dim);
  for (int h = 0; h < kv_heads; ++h) {
    const size_t head = static_cast<size_t>(h) * head_elements;
    kernels.to_f16(k + h * dim, scratch, dim);
    uint16_t* key = keys + head + static_cast<size_t>(t) * kKeyTile * static_cast<size_t>(dim) + lane;
    for (int d = 0; d < dim; ++d) key[d * width] = scratch[d];
    kernels.to_f16(v + h * dim, values + head + static_cast<size_t>(slot) * static_cast<size_t>(dim), dim);
  }
}

void KvStore::copy_slot(int slot, const KvStore& from, int from_slot) const {
  const size_t d_count = static_cast<size_t>(dim);
  const int t = slot / kKeyTile, width = pitch(t), from_t = from_slot / kKeyTile, from_width = from.pitch(from_t);
  for (int h = 0; h < kv_heads; ++h) {
    const size_t head = static_cast<size_t>(h) * static_cast<size_t>(capacity) * d_count;
    const size_t from_head = static_cast<size_t>(h) * static_cast<size_t>(from.capacity) * d_count;
    uint16_t* key = keys + head + static_cast<size_t>(t) * kKeyTile * d_count + slot % kKeyTile;
    const uint16_t* from_key =
        from.keys + from_head + static_cast<size_t>(from_t) * kKeyTile * d_count + from_slot % kKeyTile;
    for (int d = 0; d < dim; ++d) key[d * width] = from_key[d * from_width];
    std::memcpy(values + head + static_cast<size_t>(slot) * d_count,
                from.values + from_head + static_cast<size_t>(from_slot) * d_count, d_count * sizeof(uint16_t));
  }
}

KeyTile KvStore::tile(int head, int t, int base, int newest) const {
  const size_t d_count = static_cast<size_t>(dim);
  const size_t start = static_cast<size_t>(head) * static_cast<size_t>(capacity) * d_count +
                       static_cast<size_t>(t) * kKeyTile * d_count;
  KeyTile tile;
  tile.keys = keys + start;
  tile.values = values + start;
  tile.pitch = pitch(t);
  // The slot that holds `newest`, and how old a slot's position is going round from there.
  const int newest_slot = newest % capacity;
  for (int i = 0; i < kKeyTile; ++i) {
    const int slot = t * kKeyTile + i;
    const int age = slot <= newest_slot ? newest_slot - slot : newest_slot - slot + capacity;
    tile.positions[i] = i < tile.pitch && age <= newest ? base + newest - age : -1;
  }
  return tile;
}

KvCache::KvCache(const Plan& plan, int context, int block) : context_(context) {
  size_t elements = 0, fresh_elements = 0;
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op) continue;
    KvStore store;
    store.capacity = op->window > 0 ? std::min(op->window, context) : context;
    store.kv_heads = op->kv_heads;
    store.dim = op->head_dim;
    KvStore fresh = store;
    fresh.capacity = block;
    const size_t index = static_cast<size_t>(op->layer);
    if (layers_.size() <= index) {
      layers_.resize(index + 1);
      fresh_.resize(index + 1);
    }
    layers_[index] = store;
    fresh_[index] = fresh;
    elements += 2 * store.elements();
    if (store.capacity < context) fresh_elements = std::max(fresh_elements, 2 * fresh.elements());
  }
  memory_ = Memory(elements * sizeof(uint16_t), "the context");
  fresh_memory_ = Memory(fresh_elements * sizeof(uint16_t), "a block of fresh keys and values");
  uint16_t* next = memory_.as<uint16_t>();
  for (size_t i = 0; i < layers_.size(); ++i) {
    KvStore& store = layers_[i];
    store.keys = next;
    store.values = next + store.elements();
    next += 2 * store.elements();
    fresh_[i].keys = fresh_memory_.as<uint16_t>();
    fresh_[i].values = fresh_[i].keys + fresh_[i].elements();
  }
}

}  // namespace doppler::cpu
