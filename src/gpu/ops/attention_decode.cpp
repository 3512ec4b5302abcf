#include "gpu/ops/attention_decode.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "gpu/wgsl/attention_decode.h"
#include "gpu/wgsl/attention_fused.h"
#include "gpu/wgsl/attention_merge.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kThreads = 256, kTeam = 32, kTile = 64;  // as in ops/lib/split.wgsl
constexpr uint32_t kMergeThreads = 64;
constexpr uint32_t kEnoughWorkgroups = 128;  // for the GPUs there are: measured on 132 multiprocessors
constexpr uint32_t kMostSplits = 32;

// Workgroup memory of lib/split.wgsl and lib/attend.wgsl.
uint32_t workgroup_bytes(uint32_t head_dim, uint32_t heads, uint32_t round_dims) {
  const uint32_t vectors =
      head_dim + std::max(kThreads / kTeam * kTile, round_dims * (kThreads + 1)) + 3 * kTile + kTile / 8 + 1;
  return 4 * heads * vectors + 6 * head_dim + head_dim + head_dim / 2 + 64;
}

// Query heads of a workgroup: 1, 2 or 4. As few as keep within kEnoughWorkgroups, and as fit.
uint32_t heads_together(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits) {
  uint32_t heads = shape.share() >= 3 ? 4 : shape.share();
  const auto too_many = [&] {
    return shape.kv_heads * splits * div_up(shape.share(), heads / 2) <= kEnoughWorkgroups ||
           workgroup_bytes(shape.head_dim, heads, 1) > capabilities.limits.workgroup_bytes;
  };
  while (heads > 1 && too_many()) heads /= 2;
  return heads;
}

Grid grid_of(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits) {
  return {splits, shape.kv_heads * div_up(shape.share(), heads_together(capabilities, shape, splits)), 1};
}

}  // namespace

uint32_t choose_splits(const Capabilities&, const AttentionShape&, uint32_t longest) {
  return std::clamp(div_up(longest, kTile), 1u, kMostSplits);
}

uint64_t partial_bytes(const AttentionShape& shape, uint32_t splits) {
  return uint64_t{4} * splits * shape.heads * (shape.head_dim + 4);
}

Variant choose_attention_decode(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits,
                                bool fused) {
  const uint32_t heads = heads_together(capabilities, shape, splits);
  uint32_t round_dims = 8;
  while (round_dims > 1 && workgroup_bytes(shape.head_dim, heads, round_dims) > capabilities.limits.workgroup_bytes) {
    round_dims /= 2;
  }
  return {{{"heads", heads == 1   ? "one"
                     : heads == 2 ? "two"
                                  : "four"}},
          {{"threads", kThreads},
           {"head_dim", shape.head_dim},
           {"round_dims", round_dims},
           {"made_here", fused ? 1.0 : 0.0}}};
}

Variant choose_attention_merge(const Capabilities&) { return {{}, {{"threads", kMergeThreads}}}; }

size_t record_attention_decode(Recording& recording, const std::string& step, const AttentionShape& shape,
                               const BoundBuffer& q, const AttentionDecodeBuffers& buffers, uint32_t splits) {
  check_attention_shape(shape, step);
  return recording.dispatch<wgsl::AttentionDecode>(
      step, choose_attention_decode(recording.device().capabilities(), shape, splits, false),
      {.heads = shape.heads,
       .kv_heads = shape.kv_heads,
       .capacity = shape.capacity,
       .window = shape.window,
       .splits = splits,
       .scale = shape.scale,
       .softcap = shape.softcap,
       .sinks = shape.sinks},
      {.state = buffers.state,
       .q = q,
       .cache = buffers.cache,
       .weights = buffers.weights,
       .partials = buffers.partials},
      grid_of(recording.device().capabilities(), shape, splits));
}

size_t record_attention_fused(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const HeadNorm& norm, const Projections& projections, const BoundBuffer& rope,
                              const AttentionDecodeBuffers& buffers, uint32_t splits) {
  check_attention_shape(shape, step);
  return recording.dispatch<wgsl::AttentionFused>(
      step, choose_attention_decode(recording.device().capabilities(), shape, splits, true),
      {.heads = shape.heads,
       .kv_heads = shape.kv_heads,
       .capacity = shape.capacity,
       .window = shape.window,
       .splits = splits,
       .scale = shape.scale,
       .softcap = shape.softcap,
       .sinks = shape.sinks,
       .norm = norm.on,
       .eps = norm.eps,
       .norm_offset = norm.offset,
       .q_offset = projections.q_offset,
       .k_offset = projections.k_offset,
       .v_offset = projections.v_offset},
      {.state = buffers.state,
       .q = projections.q,
       .k = projections.k,
       .v = projections.v,
       .weights = buffers.weights,
       .rope = rope,
       .cache = buffers.cache,
       .partials = buffers.partials},
      grid_of(recording.device().capabilities(), shape, splits));
}

size_t record_attention_merge(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const BoundBuffer& state, const BoundBuffer& partials, const BoundBuffer& out,
                              uint32_t splits) {
  return recording.dispatch<wgsl::AttentionMerge>(
      step, choose_attention_merge(recording.device().capabilities()),
      {.heads = shape.heads, .head_dim = shape.head_dim, .splits = splits, .window = shape.window},
      {.state = state, .partials = partials, .out = out},
      {div_up(shape.heads * shape.head_dim, 4 * kMergeThreads), 1, 1});
}

}  // namespace doppler::gpu
