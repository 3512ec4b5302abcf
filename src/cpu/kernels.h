// The inner loops, as a table of functions: one table per instruction set, all with the same meaning. Plain types
// only, because the files that fill the tables are compiled with different instruction sets (see cpu_flags.cmake).
#pragma once

#include <cstddef>
#include <cstdint>

namespace doppler::cpu {

// 256 activations in int8, the unit the quantised dot products read. Groups of 32 have a scale of their own:
// x[32g + i] ≈ d[g] · q[group_offset(g) + i]. A row of K activations is ceil(K / 256) blocks; the tail holds zeros.
inline constexpr int kBlock = 256;
inline constexpr int kGroup = 32;
// Groups lie in the order 0 2 1 3, 4 6 5 7: that of the low, then the high nibbles of 64 bytes of Q4_K.
constexpr int group_offset(int g) { return ((g & 4) | (g & 1) << 1 | (g & 2) >> 1) * kGroup; }
struct alignas(64) ActBlock {
  int8_t q[kBlock];
  float d[kBlock / kGroup];
  float ds[kBlock / kGroup];    // d · Σq over the group: what a weight block's minimum multiplies
  int32_t zero16[kBlock / 16];  // −32 · Σq over 16: what the zero point of Q6_K adds, and what minima for 16 multiply
};

// The same with 15 bits, q = 128·high + low: for weights so exact that 8-bit activations would be the larger error.
struct alignas(64) WideBlock {
  int8_t high[kBlock];
  int8_t low[kBlock];
  float d[kBlock / kGroup];
  float ds[kBlock / kGroup];
};

// 256 activations with one scale for all: x[i] ≈ d · q[i].
struct alignas(64) ByteBlock {
  int8_t q[kBlock];
  float d;
  int32_t zero;  // −128 · Σq: what the zero point of weights in bytes adds
};

// What a format's products read: float[k], ActBlock[], WideBlock[]; or ActBlock[] for GEMV (few tokens) and ByteBlock[]
// for GEMM (many).
enum class Input : uint8_t { kF32, kInt8, kInt15, kInt8OrBytes };
// Do GEMV and GEMM read the same numbers? Then a token's result is the same, to the bit, whatever the batch.
constexpr bool batch_invariant(Input input) { return input < Input::kInt8OrBytes; }

// out[r] = row r · x for rows of k weights, `stride` bytes apart. x is as the format needs it.
using DotFn = void (*)(const void* weights, size_t stride, int rows, const void* x, int k, float* out);

// GEMM: many tokens at once. `unpack` lays kTileRows rows × `depth` weights (from column k0, a multiple of
// Format::depth) into a tile of its own order; where there are fewer rows, the others hold anything finite. `multiply`
// adds tile · x to c [tokens][kTileRows], or sets it when `first`. x[t] + offset bytes is token t's activation at
// column k0. depth is a multiple of 32 for quantised formats; `multiply` sees the same depth.
inline constexpr int kTileRows = 32;
using UnpackFn = void (*)(const void* weights, size_t stride, int rows, int k, int k0, int depth, void* tile);
using MultiplyFn = void (*)(const void* tile, int depth, const void* const* x, size_t offset, int tokens, float* c,
                            bool first);

// Rows in the order that the kernels read them, made once when a model is loaded: strips of kStripRows rows, one after
// another. What lies where in a strip is the instruction set's own affair.
inline constexpr int kStripRows = 16;
inline constexpr int kMaxGemvTokens = 8;  // in one call
struct Packing {
  size_t (*strip_bytes)(int cols);  // a multiple of 64
  // rows ≤ kStripRows; those that are missing are zeros.
  void (*pack)(const void* weights, size_t stride, int rows, int cols, void* strip);
  // out[t · pitch + r] = row r · x[t] for up to kMaxGemvTokens tokens. `next`: what this thread reads after these, the
  // first of which is fetched ahead; null where that is not known.
  void (*gemv)(const void* strips, int rows, int cols, const void* const* x, int tokens, float* out, size_t pitch,
               const void* next);
  // As UnpackFn, from one or two strips.
  void (*unpack)(const void* strips, int rows, int cols, int k0, int depth, void* tile);
  // One row of a strip as floats, to the bit what the unpacked row decodes to.
  void (*row)(const void* strip, int row, int cols, float* out);
  int gemv_strips = 1;  // strips that `gemv` takes at once when there is one token
};

// How one weight format is multiplied: as it comes, or packed.
struct Format {
  DotFn dot = nullptr;
  UnpackFn unpack = nullptr;
  MultiplyFn multiply = nullptr;
  int depth = 0;  // columns of a tile at most; a multiple of 256 for quantised formats
  Input input = Input::kF32;
  const Packing* packing = nullptr;  // then there is no dot and no unpack
};
// A format whose tiles are whole rows, multiplied where they lie: the tile only refers to them.
inline constexpr int kWholeRow = 1 << 30;
struct RowsRef {
  const void* weights;
  size_t stride;
  int rows;
};

enum FormatId {
  kFormatF32,
  kFormatF16,
  kFormatBF16,
  kFormatQ8_0,
  kFormatQ4_K,
  kFormatQ6_K,
  kFormatMXFP4,
  kFormatQ4_0,
  kFormatQ4_1,
  kFormatQ5_0,
  kFormatQ5_1,
  kFormatQ2_K,
  kFormatQ3_K,
  kFormatQ5_K,
  kFormatIQ4_NL,
  kFormatIQ4_XS,
  kFormatCount
};

// The largest tile of any format, bytes.
inline constexpr size_t kTileBytes = 2 * 512 * kTileRows;

struct GluParams {
  int activation;  // Activation as a number
  float limit, alpha;
};

// 16 keys of one kv head, in 16 bits: keys as [dim][16] (so that lanes are keys), values as [key][dim]. A key or value
// vector is its scale times whole numbers up to ±32767. That costs one scale per vector more than f16 and is closer
// whatever the numbers: the rounding error is at most 2^-16 of the largest element, and has no largest value.
inline constexpr int kKeyTile = 16;
struct KeyTile {
  const int16_t* keys;
  const int16_t* values;
  const float* key_scales;  // [kKeyTile]
  const float* value_scales;
  int32_t position;  // of the first key; keys that nobody has written yet lie behind every query's last
};

// Attention goes in units of 128 keys, those at positions 128u … 128u+127. Each unit is a softmax of its own, joined to
// what came before; so the result for a token does not depend on how tokens are grouped into blocks, nor on which
// thread does which unit.
inline constexpr int kUnitKeys = 128;
inline constexpr int kUnitTiles = kUnitKeys / kKeyTile;

// Queries [rows][dim], already scaled; row r sees the keys at first[r] … last[r].
struct QueryTile {
  const float* queries;
  const int32_t* first;
  const int32_t* last;
  int rows, dim;
  float softcap;
};

// The running softmax of a QueryTile: mixed [rows][dim] = Σ weight · value, highest [rows], total [rows].
struct SoftmaxState {
  float* mixed;
  float* highest;
  float* total;
};
// What a thread reads after a unit of keys, in as many pieces as a unit has tiles, each as large as a tile's keys; null
// where there is none.
struct ReadAhead {
  const int16_t* pieces[kUnitTiles];
};
// Floats of scratch that `attend` needs for a row.
inline constexpr int kAttendScratch = kUnitKeys + 2;

// Tokens from which GEMM is faster than GEMV, where weights are not packed.
inline constexpr int kMinGemmTokens = kMaxGemvTokens + 1;

struct Kernels {
  const char* name;
  Format formats[kFormatCount];
  int min_gemm_tokens_packed = kMinGemmTokens;  // … and where they are

  // out = x / sqrt(mean(x²) + eps) · w over groups of `group`; w already holds the offset.
  void (*norm)(const float* x, const float* w, float* out, int n, int group, float eps);
  void (*add)(const float* a, const float* b, float* out, int n);
  void (*softcap)(const float* x, float* out, int n, float cap);
  // The first `dims` of each head turn, the others are copied.
  void (*rope)(const float* x, const float* cosines, const float* sines, float* out, int width, int head_dim, int dims);
  void (*glu)(const GluParams& params, const float* gate, const float* up, float* out, int n);
  void (*glu_interleaved)(const GluParams& params, const float* gate_up, float* out, int n);
  void (*axpy)(float a, const float* x, float* out, int n);  // out += a · x
  void (*exp)(const float* x, float* out, int n);            // within 3e-7 relative for |x| < 87

  // out = Σ w[i] · x[i] over `kernel` rows of n, those of w `stride` apart; times `gate`, or through silu where it is
  // null.
  void (*convolve)(const float* const* x, const float* w, size_t stride, int kernel, const float* gate, float* out,
                   int n);
  // One token of a head's delta rule: s [key_dim][value_dim] becomes kept · s + k changeᵀ with change = beta · (v −
  // what is left of sᵀk), and out = sᵀq.
  void (*delta_step)(float* s, const float* q, const float* k, const float* v, float kept, float beta, int key_dim,
                     int value_dim, float* out);

  // Quantises x [n] to blocks; n need not be a multiple of anything. The tail of the last block is zeroed.
  void (*quantize)(const float* x, int n, ActBlock* out);
  void (*quantize_wide)(const float* x, int n, WideBlock* out);
  // Quantises one group of n ≤ 32 values into group g of a block.
  void (*quantize_group)(const float* x, int n, ActBlock* block, int g);
  void (*quantize_wide_group)(const float* x, int n, WideBlock* block, int g);

  // x [n] to blocks with one scale; the tail of the last is zeroed. `out` may lie where x begins. Only where a format
  // reads it, as the next.
  void (*quantize_bytes)(const float* x, int n, ByteBlock* out) = nullptr;
  // Rounds x to whole numbers up to ±32767 times the scale it returns (NaN, with zeros, if an x is not finite).
  float (*to_i16)(const float* x, int16_t* out, int n);
  // Joins the softmax of one unit's keys, in `count` ≤ kUnitTiles tiles, to the running one. `next`: what this thread
  // reads after them, or null.
  void (*attend)(const QueryTile& q, const KeyTile* tiles, int count, const SoftmaxState& state, float* scratch,
                 const ReadAhead* next);
  // Joins one row of a running softmax to another: what `attend` does with a unit.
  void (*merge)(const SoftmaxState& into, const SoftmaxState& part, int dim);

  // Reads every byte of [data, data + bytes) in wide loads; the sum keeps the compiler honest.
  uint64_t (*stream)(const void* data, size_t bytes);
};

extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
const Kernels& avx512_kernels();
const Kernels& amx_kernels();  // those of AVX-512, with tiles of K-quants multiplied by AMX
#endif

}  // namespace doppler::cpu
