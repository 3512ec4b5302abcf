#include "cpu/kv_pages.h"

#include <algorithm>
#include <cstring>

namespace doppler::cpu {

size_t KvPages::Layer::head_bytes() const {
  return round_up(2 * kKeyTile * (sizeof(float) + static_cast<size_t>(dim) * sizeof(int16_t)), kLine);
}

KvPages::KvPages(const Plan& plan) {
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op) continue;
    if (layers_.size() <= static_cast<size_t>(op->layer)) layers_.resize(static_cast<size_t>(op->layer) + 1);
    Layer& layer = layers_[static_cast<size_t>(op->layer)];
    layer = {op->kv_heads, op->head_dim};
    page_bytes_ = std::max(page_bytes_, static_cast<size_t>(layer.kv_heads) * layer.head_bytes());
  }
}

void KvPages::allocate(size_t pages) { memory_ = Memory::large(pages * page_bytes_, "the cache of keys and values"); }

KeyTile KvPages::tile(int layer, PageId page, int head, int position) const {
  const std::byte* at = this->head(layer, page, head);
  KeyTile tile;
  tile.key_scales = reinterpret_cast<const float*>(at);
  tile.value_scales = tile.key_scales + kKeyTile;
  tile.keys = reinterpret_cast<const int16_t*>(tile.value_scales + kKeyTile);
  tile.values = tile.keys + kKeyTile * layers_[static_cast<size_t>(layer)].dim;
  tile.position = position;
  return tile;
}

void KvPages::store(const Kernels& kernels, int layer, PageId page, int cell, const float* k, const float* v,
                    int16_t* scratch) const {
  const Layer& shape = layers_[static_cast<size_t>(layer)];
  const int dim = shape.dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    float* scales = reinterpret_cast<float*>(head(layer, page, h));
    int16_t* keys = reinterpret_cast<int16_t*>(scales + 2 * kKeyTile);
    scales[cell] = kernels.to_i16(k + h * dim, scratch, dim);
    for (int d = 0; d < dim; ++d) keys[d * kKeyTile + cell] = scratch[d];
    scales[kKeyTile + cell] = kernels.to_i16(v + h * dim, keys + (kKeyTile + cell) * dim, dim);
  }
}

void KvPages::copy(PageId from, PageId to) const {
  std::memcpy(memory_.data() + to * page_bytes_, memory_.data() + from * page_bytes_, page_bytes_);
}

}  // namespace doppler::cpu
