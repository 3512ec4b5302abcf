// From f32 to stored bytes. The formats are ggml's (format/dtype.h), the way to them is ours.
//
// How Q4_K is searched. A block is 256 weights in eight sub-blocks of 32; weight = d·sc·q − dmin·m with q of 4 bits, sc
// and m of 6 bits per sub-block, d and dmin of 16 bits per block. We look for the least squared error over the real
// weights:
//
//   1. Signs. d and dmin are signed halves, so a block may count its steps upwards from a floor (d > 0) or downwards
//      from a ceiling (d < 0), and floor or ceiling may lie on either side of zero (sign of dmin). ggml always takes
//      d, dmin >= 0: a sub-block without a negative value then wastes the levels between zero and its least value. We
//      compare the four ways by the width of the steps they would need and take the best.
//   2. Each sub-block alone: sixteen step widths around range/15, each followed by rounding, the best line through
//      (q, weight), and both once more. The best of the sixteen is the sub-block's ideal (scale, minimum).
//   3. The block: sixteen pairs (d, dmin) that give the largest scale 63, 62, 61 or 60 steps and the largest minimum
//      likewise, as rounded to halves. For each: round the scales; find the minimum that suits the *rounded* scale;
//      round it; quantise all weights again; sum the true errors. Take the best pair.
//   4. Each sub-block again: with d and dmin fixed, sc −2 … +2 and the fitting m −1 … +1, by true error.
//
// ggml tries 21 widths in step 2 under a weighting by magnitude, without a second rounding, takes the first pair of
// step 3 only, rounds scale and minimum apart, and has no step 4. So ours is at or below it on every matrix measured
// (about 3 % on bell-shaped weights, half on positive ones), at a cost that vectors hide: the sixteen candidates of a
// step are the lanes of a vector, so no step needs a sum across lanes and every machine computes the same bytes.
//
// Q6_K is the same without minima (sixteen sub-blocks of 16, sc signed 8 bits); Q8_0, Q5_0 and Q4_0 have one scale a
// block: sixteen scales are fitted, rounded to halves, and the best by true error is taken; d may be negative there,
// too.
#pragma once

#include <cstddef>

#include "base/threads.h"
#include "format/dtype.h"

namespace doppler {

// F32, F16, BF16, Q8_0, Q5_0, Q4_0, Q4_K and Q6_K can be written; other types are only read.
bool can_quantize(DType type);

// row[cols] -> out[row_bytes(type, cols)]. In the padding behind the last weight the formats without a minimum hold
// exact zeros, Q4_K the nearest to zero that the last sub-block can express (sub-blocks of nothing but padding: exact
// zeros); padding never influences how the weights before it are stored. Values must be finite: see all_finite() in
// format/decode.h.
void quantize_row(DType type, const float* row, std::byte* out, size_t cols);

// src[rows][cols] -> dst[rows][row_bytes(type, cols)], rows shared among the threads of the pool. The bytes do not
// depend on the number of threads nor on the processor.
void quantize_rows(DType type, const float* src, std::byte* dst, size_t rows, size_t cols, ThreadPool& pool);

// The largest magnitude the type can store; beyond it F16 gives infinity and the quantised types clip. Weights past it
// are not weights: a caller that meets one should say so.
float largest_magnitude(DType type);

}  // namespace doppler
