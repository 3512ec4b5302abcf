#include "gpu/attention_prefill.h"

#include <algorithm>

#include "gpu/wgsl/attention_prefill.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kTeam = 32, kRows = 4, kTile = 64;  // as in kernels/attention_prefill.wgsl
// Small workgroups keep a large GPU busy with short prompts and wait less for each other.
constexpr uint32_t kMostTeams = 4;

uint32_t team_bytes(uint32_t head_dim) { return 16 * (head_dim + 2 * kTile + 8); }

uint32_t teams_for(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens) {
  uint32_t teams = kMostTeams;
  const auto fits = [&](uint32_t n) {
    return n * team_bytes(shape.head_dim) <= capabilities.limits.workgroup_bytes &&
           n * kTeam <= capabilities.limits.invocations;
  };
  while (teams > 1 && (!fits(teams) || teams * kRows / 2 >= tokens * shape.share())) teams /= 2;
  return teams;
}

}  // namespace

Variant choose_attention_prefill(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens) {
  return {{}, {{"teams", teams_for(capabilities, shape, tokens)}, {"head_dim", shape.head_dim}}};
}

size_t record_attention_prefill(Recording& recording, const std::string& step, const AttentionShape& shape,
                                const AttentionPrefillBuffers& buffers, uint32_t tokens, const FirstPosition& first) {
  check_attention_shape(shape, step);
  const Capabilities& capabilities = recording.device().capabilities();
  const uint32_t teams = teams_for(capabilities, shape, tokens);
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
