// y = W · x (+ bias) for one column or a few: the matrix product of decode. Every column reads the whole of W again, so
// a prefill of many tokens belongs to another kernel.
//
// Beside project.h, because neither can stand in for the other: a projection holds x in workgroup memory, so its rows
// are bounded and a multiple of 4 long, and it takes one column; this takes any length and any number of columns, and
// adds up in another order. Blocks of one token and shapes that can_project() refuses come here.
#pragma once

#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

struct MatvecShape {
  DType dtype = DType::kF32;
  uint64_t rows = 0, cols = 0;  // of W
  bool exact = false;           // keep x in float even where int8 would be faster (see ops/matvec.wgsl)
  bool mixed = false;           // rows of Q6_K behind rows of Q4_K (Weight::second): for the projections of project.h
};

// Quantised weights meet x as int8, one scale for 32 elements, where the device has packed dot products and `exact`
// does not forbid it. All else is float arithmetic.
Variant choose_matvec(const Capabilities& capabilities, const MatvecShape& shape);

// x f32 [columns, W.cols]; bias f32 [W.rows] or none; y f32 [columns, W.rows].
void record_matvec(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                   const BoundBuffer& bias, const BoundBuffer& y, uint32_t columns = 1);

// The same with a variant of the caller's, for tests and tuning.
void record_matvec(Recording& recording, const std::string& step, const Variant& variant, const Weight& weight,
                   const BoundBuffer& x, const BoundBuffer& bias, const BoundBuffer& y, uint32_t columns = 1);

}  // namespace doppler::gpu
