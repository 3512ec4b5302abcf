#include "gpu/ops/attention_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace doppler::gpu {

void check_attention_shape(const AttentionShape& shape, const std::string& where) {
  const auto refuse = [&](const char* what, std::string expected, std::string got) {
    fail({ErrorCode::kUnsupported, what, where, std::move(expected), std::move(got), ""});
  };
  if (shape.head_dim == 0 || shape.head_dim % 8 != 0 || shape.head_dim > 256) {
    refuse("the WebGPU backend does not do this head size", "a multiple of 8, up to 256",
           fmt::format("{}", shape.head_dim));
  }
  if (shape.kv_heads == 0 || shape.heads == 0 || shape.heads % shape.kv_heads != 0) {
    refuse("query heads must be shared out evenly among kv heads", "heads divisible by kv heads",
           fmt::format("{} and {}", shape.heads, shape.kv_heads));
  }
  if (shape.capacity < 64) {
    refuse("a layer's cache is too small", "at least 64 slots", fmt::format("{}", shape.capacity));
  }
  // Kernels count the cache's words in u32.
  if (kv_bytes(shape) / 4 > UINT32_MAX) {
    refuse("a layer's cache is too large", "up to 16 GiB", fmt::format("{} bytes", kv_bytes(shape)));
  }
}

uint32_t kv_capacity(uint32_t context, uint32_t window, uint32_t block) {
  const uint64_t needed = window == 0 ? context : std::min<uint64_t>(context, uint64_t{window} + block);
  return static_cast<uint32_t>(std::max<uint64_t>((needed + 31) / 32 * 32, 64));
}

uint64_t kv_bytes(const AttentionShape& shape) {
  return uint64_t{2} * shape.kv_heads * shape.capacity * shape.head_dim * 2 +
         uint64_t{4} * shape.kv_heads * shape.capacity;
}

std::vector<float> head_weights(const AttentionShape& shape, std::span<const float> q_norm,
                                std::span<const float> k_norm, std::span<const float> sinks) {
  std::vector<float> out(2 * size_t{shape.head_dim} + shape.heads, 0.0f);
  const auto place = [&](std::span<const float> from, size_t at, size_t size, const char* name) {
    if (from.empty()) return;
    if (from.size() != size) {
      fail({ErrorCode::kInternal, "a head's weights have the wrong size", name, fmt::format("{}", size),
            fmt::format("{}", from.size()), ""});
    }
    std::copy(from.begin(), from.end(), out.begin() + static_cast<ptrdiff_t>(at));
  };
  place(q_norm, 0, shape.head_dim, "q_norm");
  place(k_norm, shape.head_dim, shape.head_dim, "k_norm");
  place(sinks, 2 * size_t{shape.head_dim}, shape.heads, "sinks");
  return out;
}

}  // namespace doppler::gpu
