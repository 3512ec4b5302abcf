#include "gpu/ops/attention_prefill.h"

#include <algorithm>

#include "gpu/wgsl/attention_prefill.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kTeam = 32, kRows = 4, kTile = 64;  // as in ops/attention_prefill.wgsl

struct Teams {
  uint32_t teams, key_parts;
};

uint32_t workgroup_bytes(const Teams& t, uint32_t head_dim) {
  return 16 * t.teams * (head_dim + t.key_parts * (2 * kTile + 8));
}

// Small workgroups keep a large GPU busy with short prompts and wait less for each other; teams that share their rows
// hide each other's waits for memory.
Teams teams_for(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens) {
  const uint64_t rows = uint64_t{tokens} * shape.share();
  for (const Teams t : {Teams{2, 2}, Teams{2, 1}, Teams{1, 2}, Teams{1, 1}}) {
    if (t.teams > 1 && rows <= kRows) continue;
    if (workgroup_bytes(t, shape.head_dim) <= capabilities.limits.workgroup_bytes &&
        t.teams * t.key_parts * kTeam <= capabilities.limits.invocations) {
      return t;
    }
  }
  return {1, 1};
}

}  // namespace

Variant choose_attention_prefill(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens) {
  const Teams t = teams_for(capabilities, shape, tokens);
  return {{}, {{"teams", t.teams}, {"key_parts", t.key_parts}, {"head_dim", shape.head_dim}}};
}

size_t record_attention_prefill(Recording& recording, const std::string& step, const AttentionShape& shape,
                                const AttentionPrefillBuffers& buffers, uint32_t tokens, const FirstPosition& first) {
  check_attention_shape(shape, step);
  const Capabilities& capabilities = recording.device().capabilities();
  const uint32_t teams = teams_for(capabilities, shape, tokens).teams;
  return recording.dispatch<wgsl::AttentionPrefill>(
      step, choose_attention_prefill(capabilities, shape, tokens),
      {.tokens = tokens,
       .heads = shape.heads,
       .kv_heads = shape.kv_heads,
       .capacity = shape.capacity,
       .window = shape.window,
       .first = first.first,
       .follow_state = first.follow_state,
       .scale = shape.scale,
       .softcap = shape.softcap,
       .sinks = shape.sinks},
      {.state = buffers.state, .q = buffers.q, .cache = buffers.cache, .weights = buffers.weights, .out = buffers.out},
      {div_up(uint64_t{tokens} * shape.share(), teams * kRows), shape.kv_heads, 1});
}

}  // namespace doppler::gpu
