// Attention and what comes before it: the shape of a layer, its cache and small weights, the rotary embedding and the
// store of keys and values, attention of one token and of a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/webgpu/recording.h"
#include "model/model_config.h"

namespace doppler::gpu {

inline constexpr uint32_t kMaxHeadDim = 512, kMaxDecodeHeadDim = 256;

struct AttentionShape {
  uint32_t heads = 0, kv_heads = 0;
  uint32_t head_dim = 0;  // a multiple of 8, up to kMaxHeadDim; up to kMaxDecodeHeadDim for one token's own kernels
  uint32_t pages = 0;     // of the layer's cache
  uint32_t table = 0;     // where its group's begin among the pages of a sequence that DecodeState is followed by
  uint32_t window = 0;    // keys position-window+1 … position+ahead are seen; 0: all up to there
  uint32_t ahead = 0;     // other than 0 in attention of a whole text only
  float scale = 1;        // of q·k
  float softcap = 0;      // cap · tanh(score / cap); 0: none
  bool sinks = false;     // one logit per head joins the softmax

  uint32_t heads_per_kv() const { return heads / kv_heads; }  // query heads of a kv head
};

// What wishes may name for such a layer on this device: "attention", of a prompt ("t2.k2": teams that share keys and
// parts of the keys; "plain": one of each), and "attention_decode", of a token ("h4": query heads of a workgroup).
std::vector<std::string> attention_variants(const Capabilities& capabilities, const AttentionShape& shape);
std::vector<std::string> attention_decode_variants(const Capabilities& capabilities, const AttentionShape& shape);

// Fails (kUnsupported) for shapes that the kernels do not do.
void check_attention_shape(const AttentionShape& shape, const std::string& where, uint32_t largest = kMaxHeadDim);

// Per-head RMS norm of q and k before the rotary embedding.
struct HeadNorm {
  bool on = false;
  float eps = 0, offset = 0;
};

// The position of a block's first token: `first`, counted from zero or from DecodeState::position.
struct FirstPosition {
  uint32_t first = 0;
  bool follow_state = true;
};

// Positions of a page of a layer's cache: a tile of keys. Its bytes: keys and values, two per dim, and the steps of the
// values (ops/lib/kv_cache.wgsl).
constexpr uint32_t kPageTokens = 64;
uint64_t kv_page_bytes(const AttentionShape& shape);
// Of one layer's cache, one buffer of pages.
inline uint64_t kv_bytes(const AttentionShape& shape) { return shape.pages * kv_page_bytes(shape); }

// A layer's small weights in one buffer: q norm [head_dim], k norm [head_dim], sinks [heads]. What a layer does not
// have is empty and becomes zeros.
std::vector<float> head_weights(const AttentionShape& shape, std::span<const float> q_norm,
                                std::span<const float> k_norm, std::span<const float> sinks);

// What changes with every token of a decode, in a small storage buffer (ops/lib/common.wgsl): one recording serves
// all tokens, because the kernel that picks a token advances this itself. Kernels that reach the cache find behind it
// which pages the sequence holds: u32 by group of layers, then by position / kPageTokens.
struct DecodeState {
  uint32_t position = 0;  // tokens already in the context: the current token's position
  uint32_t token = 0;     // the current token
  uint32_t draw = 0;      // number of the random draw
  uint32_t produced = 0;  // tokens written to out_tokens
};
static_assert(sizeof(DecodeState) == 16);

// Rotary angles without trigonometry in a shader (WGSL's sin and cos are good near zero only): position p turns by
// coarse[p / 256] and then by fine[p % 256], both made here in double. The rope's magnitude is in the coarse
// table.

// (cos, sin) pairs: fine [256][pairs], then coarse [⌈context / 256⌉][pairs]. One buffer per rope. pairs is head_dim /
// 2, the table's own number where it is 0; pairs past the table's do not turn.
std::vector<float> rope_tables(const RopeTable& table, int context, int pairs = 0);

// From raw projections to what attention reads: norm and rotary embedding of q and k, and the store of k and v.

// Raw projections, f32: row t of q starts at q_offset + t · q_stride, and so on. Three buffers, or one three times.
// Offsets and strides are counted in f32 and even.
struct Projections {
  BoundBuffer q, k, v;
  uint32_t q_offset = 0, q_stride = 0;
  uint32_t k_offset = 0, k_stride = 0;
  uint32_t v_offset = 0, v_stride = 0;
};

// q, k and v side by side in rows of one buffer.
Projections packed_projections(const BoundBuffer& qkv, const AttentionShape& shape);
// Each in a buffer of its own.
Projections separate_projections(const BoundBuffer& q, const BoundBuffer& k, const BoundBuffer& v,
                                 const AttentionShape& shape);

struct RopeStoreBuffers {
  BoundBuffer state;    // DecodeState and pages
  BoundBuffer weights;  // head_weights()
  BoundBuffer rope;     // rope_tables()
  BoundBuffer cache;    // kv_bytes()
  BoundBuffer q_out;    // f32 [tokens, heads · head_dim], rotated
  uint32_t dims = 0;    // of a head, that turn; 0 is all (a table without turns is for none)
};

Variant choose_rope_store(const Capabilities& capabilities, uint32_t head_dim);

size_t record_rope_store(Recording& recording, const std::string& step, const AttentionShape& shape,
                         const HeadNorm& norm, const Projections& projections, const RopeStoreBuffers& buffers,
                         uint32_t tokens, const FirstPosition& first);

// Attention of one token, split over its keys: the workgroups of attention_decode or attention_fused leave partial
// results, which attention_merge puts together, or the first stage of the kernel that follows
// (ops/attention_decode.wgsl). How many splits have work follows from DecodeState::position, so one recording
// serves every length.

// Splits of the grid. A split takes a whole number of tiles of 64 keys, so a short context uses fewer; a long one gives
// each split more tiles. `longest` is the most keys a token of this layer will ever see (window or context).
uint32_t choose_splits(const Capabilities& capabilities, const AttentionShape& shape, uint32_t longest);

// Bytes of the partial results: f32 [splits][heads · head_dim], then [splits][heads] of (max, sum, 0, 0).
uint64_t partial_bytes(const AttentionShape& shape, uint32_t splits);

// For attention_decode and attention_fused alike, but for the constant made_here. Query heads that share a kv head go
// into one workgroup, so that keys and values are read once; but while there are few workgroups, each takes fewer
// heads.
Variant choose_attention_decode(const Capabilities& capabilities, const AttentionShape& shape, uint32_t splits,
                                bool fused, uint32_t columns = 1);
Variant choose_attention_merge(const Capabilities& capabilities);

struct AttentionDecodeBuffers {
  BoundBuffer state;     // DecodeState and pages
  BoundBuffer weights;   // head_weights()
  BoundBuffer cache;     // kv_bytes()
  BoundBuffer partials;  // partial_bytes()
};

// q: f32 [heads · head_dim], rotated; the token's key and value are in the cache.
size_t record_attention_decode(Recording& recording, const std::string& step, const AttentionShape& shape,
                               const BoundBuffer& q, const AttentionDecodeBuffers& buffers, uint32_t splits);

// From raw projections: norm, rotary embedding, store and attention in one dispatch. `columns` is 0 for one token, or
// how many tokens of different sequences there may be: rows of the projections, each with partials of its own. Then the
// state is that of KvPool::show_columns, where the pages of columns begin at `pages`, `stride` apart. `together`:
// several columns may be tokens of one sequence, in order; that takes two dispatches.
struct AttentionColumns {
  uint32_t columns = 0, pages = 0, stride = 0;
  bool together = false;
};
size_t record_attention_fused(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const HeadNorm& norm, const Projections& projections, const BoundBuffer& rope,
                              const AttentionDecodeBuffers& buffers, uint32_t splits,
                              const AttentionColumns& columns = {});

// out: f32 [heads · head_dim].
size_t record_attention_merge(Recording& recording, const std::string& step, const AttentionShape& shape,
                              const BoundBuffer& state, const BoundBuffer& partials, const BoundBuffer& out,
                              uint32_t splits);

// Attention of a block of tokens whose keys and values are in the cache already (rope_store).
struct AttentionPrefillBuffers {
  BoundBuffer state;    // DecodeState and pages
  BoundBuffer q;        // f32 [tokens, heads · head_dim], rotated
  BoundBuffer cache;    // kv_bytes()
  BoundBuffer weights;  // head_weights()
  BoundBuffer out;      // as q
};

Variant choose_attention_prefill(const Capabilities& capabilities, const AttentionShape& shape, uint32_t tokens);

size_t record_attention_prefill(Recording& recording, const std::string& step, const AttentionShape& shape,
                                const AttentionPrefillBuffers& buffers, uint32_t tokens, const FirstPosition& first);

}  // namespace doppler::gpu
