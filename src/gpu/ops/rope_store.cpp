#include "gpu/ops/rope_store.h"

#include "gpu/wgsl/rope_store.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256, kTeam = 32;  // as in ops/rope_store.wgsl
}

Projections packed_projections(const BoundBuffer& qkv, const AttentionShape& shape) {
  const uint32_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim, row = q + 2 * kv;
  return {qkv, qkv, qkv, 0, row, q, row, q + kv, row};
}

Projections separate_projections(const BoundBuffer& q, const BoundBuffer& k, const BoundBuffer& v,
                                 const AttentionShape& shape) {
  const uint32_t q_row = shape.heads * shape.head_dim, kv_row = shape.kv_heads * shape.head_dim;
  return {q, k, v, 0, q_row, 0, kv_row, 0, kv_row};
}

Variant choose_rope_store(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

size_t record_rope_store(Recording& recording, const std::string& step, const AttentionShape& shape,
                         const HeadNorm& norm, const Projections& p, const RopeStoreBuffers& buffers, uint32_t tokens,
                         const FirstPosition& first) {
  check_attention_shape(shape, step);
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t items = uint64_t{tokens} * (shape.heads + 2 * shape.kv_heads);
  return recording.dispatch<wgsl::RopeStore>(step, choose_rope_store(capabilities),
                                             {.tokens = tokens,
                                              .heads = shape.heads,
                                              .kv_heads = shape.kv_heads,
                                              .head_dim = shape.head_dim,
                                              .capacity = shape.capacity,
                                              .first = first.first,
                                              .follow_state = first.follow_state,
                                              .norm = norm.on,
                                              .eps = norm.eps,
                                              .norm_offset = norm.offset,
                                              .q_offset = p.q_offset,
                                              .q_stride = p.q_stride,
                                              .k_offset = p.k_offset,
                                              .k_stride = p.k_stride,
                                              .v_offset = p.v_offset,
                                              .v_stride = p.v_stride},
                                             {.state = buffers.state,
                                              .q = p.q,
                                              .k = p.k,
                                              .v = p.v,
                                              .weights = buffers.weights,
                                              .rope = buffers.rope,
                                              .cache = buffers.cache,
                                              .q_out = buffers.q_out},
                                             linear_grid(div_up(items, kThreads / kTeam), capabilities.limits));
}

}  // namespace doppler::gpu
