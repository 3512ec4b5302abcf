// The bytes of the cache's pages (see model/kv_cache.h). A page is one layer's keys and values of kKeyTile positions in
// 16 bits (see KeyTile): per kv head the scales of keys and of values [16] each, keys [dim][16], values [16][dim].
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "model/kv_cache.h"

namespace doppler::cpu {

class KvPages {
 public:
  explicit KvPages(const Plan& plan);

  size_t page_bytes() const { return page_bytes_; }
  void allocate(size_t pages);
  size_t bytes() const { return memory_.size(); }

  // Rounds one position's keys and values [kv_heads · dim] into a page. scratch: dim elements.
  void store(const Kernels& kernels, int layer, PageId page, int cell, const float* k, const float* v,
             int16_t* scratch) const;
  // What a page holds of a head, when its first position is `position`.
  KeyTile tile(int layer, PageId page, int head, int position) const;
  void copy(PageId from, PageId to) const;

 private:
  struct Layer {
    int kv_heads = 0, dim = 0;
    size_t head_bytes() const;
  };
  std::byte* head(int layer, PageId page, int head) const {
    return memory_.data() + page * page_bytes_ +
           static_cast<size_t>(head) * layers_[static_cast<size_t>(layer)].head_bytes();
  }

  std::vector<Layer> layers_;
  size_t page_bytes_ = 0;  // of the widest layer
  Memory memory_;
};

}  // namespace doppler::cpu
