// out [tokens, rows] = x [tokens, cols] · Wᵀ (+ bias) for many tokens: the matrix product of prefill.
//
// Three kernels: kMatrix multiplies f16 activations (activations.h) with decoded weights by subgroup matrices;
// kInt8 multiplies 8-bit activations (activations.h) with quantised weights by packed integer dot products;
// kFloat keeps x in f32 and takes weights of any type, on any device; where f16 is precise enough for them, it holds
// weights so. A matrix of few tiles may share its columns among workgroups ("splits"); a second dispatch then adds the
// parts.
#pragma once

#include "gpu/ops/activations.h"
#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

struct MatmulShape {
  DType dtype = DType::kF32;
  uint64_t tokens = 0, rows = 0, cols = 0;
  bool exact = false;      // x stays in f32, whatever the device can do
  bool may_split = false;  // scratch memory is at hand
  bool gathered = false;   // tokens do not lie side by side: those that chose an expert
  // Not 0: every sum is made as in a product of so many tokens, whose kernel and splits are taken.
  uint64_t like = 0;
};

enum class MatmulKernel : uint8_t { kMatrix, kInt8, kFloat };

struct MatmulChoice {
  MatmulKernel kernel = MatmulKernel::kFloat;
  Variant variant;
  uint32_t tile_rows = 0, tile_tokens = 0;  // rows of W and tokens of a workgroup
  uint32_t splits = 1;                      // parts of the columns

  std::string name() const;   // "int8 128x64 thread_tile=r8t4 … splits=1"
  std::string words() const;  // what a wish may name: "int8.128x64.t64.r4t8.b2.s1"; f16 is kFloat that holds W so
};

// A pure function. A wish for "matmul" is taken where the shape can be computed so, by the same kernel, tile and parts
// whatever the tokens are.
MatmulChoice choose_matmul(const Capabilities& capabilities, const MatmulShape& shape);

// Every choice that computes the shape on such a device, for tests and tuning.
std::vector<MatmulChoice> matmul_candidates(const Capabilities& capabilities, const MatmulShape& shape);

// Those of them that a wish may name: the tiles that are chosen from, for every kernel that computes the shape.
std::vector<MatmulChoice> matmul_variants(const Capabilities& capabilities, const MatmulShape& shape);

// Bytes of scratch memory record_matmul() needs: 0 unless the choice splits. `weight` may have several parts, which use
// the scratch one after the other.
uint64_t matmul_scratch_bytes(const MatmulChoice& choice, const Weight& weight, uint64_t tokens);

// …for any number of tokens up to shape.tokens, as choose_matmul() chooses.
uint64_t max_matmul_scratch_bytes(const Capabilities& capabilities, const MatmulShape& shape, const Weight& weight);

// x of a product: the kernel takes `plain` (f32 [tokens, cols]), `quantized` or `f16`, as MatmulChoice::kernel says;
// the others may be empty.
struct MatmulInput {
  BoundBuffer plain;
  QuantizedActivations quantized;
  uint64_t tokens = 0;
  F16Activations f16 = {};
};

// Row r of token t goes to element first + t · stride + r of the buffer, so that several products may share one.
struct MatmulOutput {
  BoundBuffer buffer;   // f32
  uint64_t stride = 0;  // elements from token to token; 0: the number of rows
  uint64_t first = 0;
};

// bias f32 [rows] or none; scratch: see matmul_scratch_bytes().
void record_matmul(Recording& recording, const std::string& step, const MatmulChoice& choice, const Weight& weight,
                   const MatmulInput& x, const BoundBuffer& bias, const MatmulOutput& out,
                   const BoundBuffer& scratch = {});

}  // namespace doppler::gpu
