#include "gpu/ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gpu/wgsl/attention_decode.h"
#include "gpu/wgsl/attention_fused.h"
#include "gpu/wgsl/attention_prefill.h"
#include "gpu/wgsl/rope.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kThreads = 256, kTeam = 32,
                   kTile = 64;  // as in ops/lib/split.wgsl, rope.wgsl, attention_prefill.wgsl
constexpr uint32_t kMergeThreads = 64;
constexpr uint32_t kEnoughWorkgroups = 128;  // for the GPUs there are: measured on 132 multiprocessors
constexpr uint32_t kMaxSplits = 32;

// Workgroup memory of lib/split.wgsl and lib/attend.wgsl.
uint32_t decode_workgroup_bytes(uint32_t head_dim, uint32_t heads, uint32_t round_dims) {
  const uint32_t vectors =
      head_dim + std::max(kThreads / kTeam * kTile, round_dims * (kThreads + 1)) + 3 * kTile + kTile / 8 + 1;
  return 4 * heads * vectors + 4 * head_dim + head_dim + head_dim / 2 + 64;
}

std::string word_of_heads(uint32_t heads) { return fmt::format("h{}", heads); }

// Query heads that one workgroup of a token's attention can take: from the most to 1.
std::vector<uint32_t> possible_heads(const Capabilities& capabilities, const AttentionShape& shape) {
  std::vector<uint32_t> list;
  for (uint32_t heads = shape.heads_per_kv() >= 3 ? 4 : shape.heads_per_kv(); heads >= 1; heads /= 2) {
    const bool fits = decode_workgroup_bytes(shape.head_dim, heads, 1) <= capabilities.limits.workgroup_bytes;
    if (fits || heads == 1) list.push_back(heads);
  }
  return list;
}

// Query heads of a workgroup: 1, 2 or 4. As few as keep within kEnoughWorkgroups, and as fit.
uint32_t heads_together(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits,
                        uint32_t columns) {
  if (const std::string_view wish = wish_for(capabilities.kernels, "attention_decode"); !wish.empty()) {
    for (const uint32_t heads : possible_heads(capabilities, shape)) {
      if (names_variant(wish, word_of_heads(heads))) return heads;
    }
  }
  uint32_t heads = shape.heads_per_kv() >= 3 ? 4 : shape.heads_per_kv();
  const auto too_many = [&] {
    return columns * shape.kv_heads * splits * div_up(shape.heads_per_kv(), heads / 2) <= kEnoughWorkgroups ||
           decode_workgroup_bytes(shape.head_dim, heads, 1) > capabilities.limits.workgroup_bytes;
  };
  while (heads > 1 && too_many()) heads /= 2;
  return heads;
}

Grid grid_of(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits, uint32_t columns) {
  const uint32_t heads = heads_together(capabilities, shape, splits, columns);
  return {splits, shape.kv_heads * div_up(shape.heads_per_kv(), heads), columns};
}

constexpr uint32_t kRows = 4;  // of a team, as in ops/attention_prefill.wgsl

struct Teams {
  uint32_t teams, key_parts;
  std::string words() const {
    return teams == 1 && key_parts == 1 ? "plain" : fmt::format("t{}.k{}", teams, key_parts);
  }
};
constexpr Teams kTeams[] = {{2, 2}, {2, 1}, {1, 2}, {1, 1}};  // the last fits everywhere

uint32_t prefill_workgroup_bytes(const Teams& t, uint32_t head_dim) {
  return 16 * t.teams * (head_dim + t.key_parts * (2 * kTile + 8));
}

bool teams_fit(const Teams& t, const Capabilities& capabilities, const AttentionShape& shape) {
  return (t.teams == 1 && t.key_parts == 1) ||
         (prefill_workgroup_bytes(t, shape.head_dim) <= capabilities.limits.workgroup_bytes &&
          t.teams * t.key_parts * kTeam <= capabilities.limits.invocations);
}

// Small workgroups keep a large GPU busy with short prompts and wait less for each other; teams that share their rows
// hide each other's waits for memory. How many share them decides what is added up with what, so the tokens must not
// count there.
Teams teams_for(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens) {
  const uint64_t rows = uint64_t{tokens} * shape.heads_per_kv();
  const std::string_view wish = wish_for(capabilities.kernels, "attention");
  for (const bool wished : {true, false}) {
    if (wished && wish.empty()) continue;
    for (const Teams& t : kTeams) {
      if (!teams_fit(t, capabilities, shape) || (wished && !names_variant(wish, t.words()))) continue;
      return {rows <= kRows ? 1 : t.teams, t.key_parts};
    }
  }
  return kTeams[3];
}

}  // namespace

std::vector<std::string> attention_variants(const Capabilities& capabilities, const AttentionShape& shape) {
  std::vector<std::string> names;
  for (const Teams& t : kTeams) {
    if (teams_fit(t, capabilities, shape)) names.push_back(t.words());
  }
  return names;
}

std::vector<std::string> attention_decode_variants(const Capabilities& capabilities, const AttentionShape& shape) {
  std::vector<std::string> names;
  for (const uint32_t heads : possible_heads(capabilities, shape)) names.push_back(word_of_heads(heads));
  return names;
}

void check_attention_shape(const AttentionShape& shape, const std::string& where, uint32_t largest) {
  const auto refuse = [&](const char* what, std::string expected, std::string got) {
    fail({.code = ErrorCode::kUnsupported,
          .what = what,
          .where = where,
          .expected = std::move(expected),
          .got = std::move(got)});
  };
  if (shape.head_dim == 0 || shape.head_dim % 8 != 0 || shape.head_dim > largest) {
    refuse("the WebGPU backend does not do this head size", fmt::format("a multiple of 8, up to {}", largest),
           fmt::format("{}", shape.head_dim));
  }
  if (shape.kv_heads == 0 || shape.heads == 0 || shape.heads % shape.kv_heads != 0) {
    refuse("query heads must be shared out evenly among kv heads", "heads divisible by kv heads",
           fmt::format("{} and {}", shape.heads, shape.kv_heads));
  }
  if (shape.pages == 0) refuse("a layer has no cache", "at least one page", "none");
  // Kernels count the cache's words in u32.
  if (kv_bytes(shape) / 4 > UINT32_MAX) {
    refuse("a layer's cache is too large", "up to 16 GiB", fmt::format("{} bytes", kv_bytes(shape)));
  }
}

uint64_t kv_page_bytes(const AttentionShape& shape) {
  return uint64_t{4} * shape.kv_heads * kPageTokens * (shape.head_dim + 1);
}

std::vector<float> head_weights(const AttentionShape& shape, std::span<const float> q_norm,
                                std::span<const float> k_norm, std::span<const float> sinks) {
  std::vector<float> out(2 * size_t{shape.head_dim} + shape.heads, 0.0f);
  const auto place = [&](std::span<const float> from, size_t at, size_t size, const char* name) {
    if (from.empty()) return;
    if (from.size() != size) {
      fail({.code = ErrorCode::kInternal,
            .what = "a head's weights have the wrong size",
            .where = name,
            .expected = fmt::format("{}", size),
            .got = fmt::format("{}", from.size())});
    }
    std::copy(from.begin(), from.end(), out.begin() + static_cast<ptrdiff_t>(at));
  };
  place(q_norm, 0, shape.head_dim, "q_norm");
  place(k_norm, shape.head_dim, shape.head_dim, "k_norm");
  place(sinks, 2 * size_t{shape.head_dim}, shape.heads, "sinks");
  return out;
}

std::vector<float> rope_tables(const RopeTable& table, int context, int pairs) {
  const int coarse = (context + 255) / 256;
  const size_t all = std::max(table.inv_freq.size(), static_cast<size_t>(pairs));
  std::vector<float> out;
  out.reserve(2 * all * static_cast<size_t>(256 + coarse));
  const auto append = [&](int position, double magnitude) {
    for (const float frequency : table.inv_freq) {
      const double angle = static_cast<double>(position) * static_cast<double>(frequency);
      out.push_back(static_cast<float>(std::cos(angle) * magnitude));
      out.push_back(static_cast<float>(std::sin(angle) * magnitude));
    }
    for (size_t i = table.inv_freq.size(); i < all; ++i) out.insert(out.end(), {1.0f, 0.0f});
  };
  for (int i = 0; i < 256; ++i) append(i, 1);
  for (int i = 0; i < coarse; ++i) append(256 * i, static_cast<double>(table.magnitude));
  return out;
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

Variant choose_rope_store(const Capabilities&, uint32_t head_dim) {
  return {{{"quads", head_dim <= 256 ? "two" : "four"}}, {{"threads", kThreads}}};
}

size_t record_rope_store(Recording& recording, const std::string& step, const AttentionShape& shape,
                         const HeadNorm& norm, const Projections& p, const RopeStoreBuffers& buffers, uint32_t tokens,
                         const FirstPosition& first) {
  check_attention_shape(shape, step);
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t items = uint64_t{tokens} * (shape.heads + 2 * shape.kv_heads);
  return recording.dispatch<wgsl::RopeStore>(step, choose_rope_store(capabilities, shape.head_dim),
                                             {.tokens = tokens,
                                              .heads = shape.heads,
                                              .kv_heads = shape.kv_heads,
                                              .head_dim = shape.head_dim,
                                              .table = shape.table,
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
                                              .v_stride = p.v_stride,
                                              .dims = buffers.dims > 0 ? buffers.dims : shape.head_dim},
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

uint32_t choose_splits(const Capabilities&, const AttentionShape&, uint32_t longest) {
  return std::clamp(div_up(longest, kTile), 1u, kMaxSplits);
}

uint64_t partial_bytes(const AttentionShape& shape, uint32_t splits) {
  return uint64_t{4} * splits * shape.heads * (shape.head_dim + 4);
}

Variant choose_attention_decode(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits,
                                bool fused, uint32_t columns) {
  const uint32_t heads = heads_together(capabilities, shape, splits, columns);
  uint32_t round_dims = 8;
  while (round_dims > 1 &&
         decode_workgroup_bytes(shape.head_dim, heads, round_dims) > capabilities.limits.workgroup_bytes) {
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
  check_attention_shape(shape, step, kMaxDecodeHeadDim);
  return recording.dispatch<wgsl::AttentionDecode>(
      step, choose_attention_decode(recording.device().capabilities(), shape, splits, false),
      {.heads = shape.heads,
       .kv_heads = shape.kv_heads,
       .table = shape.table,
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
      grid_of(recording.device().capabilities(), shape, splits, 1));
}

size_t record_attention_fused(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const HeadNorm& norm, const Projections& projections, const BoundBuffer& rope,
                              const AttentionDecodeBuffers& buffers, uint32_t splits, const AttentionColumns& columns) {
  check_attention_shape(shape, step, kMaxDecodeHeadDim);
  const Capabilities& capabilities = recording.device().capabilities();
  const uint32_t count = std::max(1u, columns.columns);
  const Grid grid = grid_of(capabilities, shape, splits, count);
  const auto dispatch = [&](uint32_t stage) {
    Variant variant = choose_attention_decode(capabilities, shape, splits, stage != 2, count);
    variant.constants.emplace_back("stage", stage);
    return recording.dispatch<wgsl::AttentionFused>(step, variant,
                                                    {.heads = shape.heads,
                                                     .kv_heads = shape.kv_heads,
                                                     .table = columns.pages + shape.table,
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
                                                     .v_offset = projections.v_offset,
                                                     .row = projections.q_stride,
                                                     .many = columns.columns > 0,
                                                     .table_stride = columns.stride},
                                                    {.state = buffers.state,
                                                     .q = projections.q,
                                                     .k = projections.k,
                                                     .v = projections.v,
                                                     .weights = buffers.weights,
                                                     .rope = rope,
                                                     .cache = buffers.cache,
                                                     .partials = buffers.partials},
                                                    grid);
  };
  if (!columns.together) return dispatch(0);
  dispatch(1);
  return dispatch(2);
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
       .table = shape.table,
       .window = shape.window,
       .ahead = shape.ahead,
       .first = first.first,
       .follow_state = first.follow_state,
       .scale = shape.scale,
       .softcap = shape.softcap,
       .sinks = shape.sinks},
      {.state = buffers.state, .q = buffers.q, .cache = buffers.cache, .weights = buffers.weights, .out = buffers.out},
      {div_up(uint64_t{tokens} * shape.heads_per_kv(), teams * kRows), shape.kv_heads,
       div_up(shape.head_dim / 8, kTeam)});
}

}  // namespace doppler::gpu
