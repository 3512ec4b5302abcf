#include "gpu/ops/matmul.h"

#include <algorithm>

#include "base/error.h"
#include "gpu/wgsl/matmul.h"
#include "gpu/wgsl/matmul_f32.h"
#include "gpu/wgsl/matmul_int8.h"
#include "gpu/wgsl/matmul_matrix.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kSumThreads = 256;

// One dispatch: a part of the rows of W, all tokens.
struct PartProduct {
  const Weight& weight;
  size_t part;
  const MatmulInput& x;
  BoundBuffer bias;  // none: empty
  BoundBuffer out;
  uint64_t out_first, out_stride, out_split;

  const WeightPart& rows() const { return weight.parts[part]; }
};

uint32_t u32(uint64_t value) { return static_cast<uint32_t>(value); }

uint32_t pieces_of(const Weight& weight) { return div_up(u32(weight.cols), kPiece); }

Grid grid_of(const MatmulChoice& choice, const PartProduct& p) {
  return {div_up(u32(p.rows().rows), choice.tile_rows), div_up(p.x.tokens, choice.tile_tokens), choice.splits};
}

void dispatch_float(Recording& recording, const std::string& step, const MatmulChoice& choice, const PartProduct& p) {
  const uint32_t pieces = pieces_of(p.weight);
  recording.dispatch<wgsl::MatmulF32>(step, choice.variant,
                                      {.tokens = u32(p.x.tokens),
                                       .rows = u32(p.rows().rows),
                                       .cols = u32(p.weight.cols),
                                       .pieces = pieces,
                                       .stride = u32(p.weight.stride / 16),
                                       .split_pieces = div_up(pieces, choice.splits),
                                       .out_first = u32(p.out_first),
                                       .out_stride = u32(p.out_stride),
                                       .out_split = u32(p.out_split),
                                       .bias = p.bias.buffer ? 1u : 0u,
                                       .bias_first = u32(p.rows().first_row)},
                                      {.x = p.x.plain,
                                       .w2 = p.rows().bound(p.weight.stride),
                                       .w4 = p.rows().bound(p.weight.stride),
                                       .bias = p.bias.buffer ? p.bias : p.x.plain,
                                       .out = p.out},
                                      grid_of(choice, p));
}

void dispatch_matrix(Recording& recording, const std::string& step, const MatmulChoice& choice, const PartProduct& p) {
  const uint32_t pieces = pieces_of(p.weight), steps = div_up(pieces, 2);
  recording.dispatch<wgsl::MatmulMatrix>(step, choice.variant,
                                         {.tokens = u32(p.x.tokens),
                                          .rows = u32(p.rows().rows),
                                          .pieces = pieces,
                                          .stride = u32(p.weight.stride / 16),
                                          .steps = steps,
                                          .split_steps = div_up(steps, choice.splits),
                                          .out_first = u32(p.out_first),
                                          .out_stride = u32(p.out_stride),
                                          .out_split = u32(p.out_split),
                                          .bias = p.bias.buffer ? 1u : 0u,
                                          .bias_first = u32(p.rows().first_row)},
                                         {.x = p.x.f16.values,
                                          .x_scales = p.x.f16.scales,
                                          .w2 = p.rows().bound(p.weight.stride),
                                          .w4 = p.rows().bound(p.weight.stride),
                                          .bias = p.bias.buffer ? p.bias : p.x.f16.scales,
                                          .out = p.out},
                                         grid_of(choice, p));
}

void dispatch_int8(Recording& recording, const std::string& step, const MatmulChoice& choice, const PartProduct& p) {
  const uint32_t pieces = pieces_of(p.weight), steps = div_up(pieces, 2);
  recording.dispatch<wgsl::MatmulInt8>(step, choice.variant,
                                       {.tokens = u32(p.x.tokens),
                                        .rows = u32(p.rows().rows),
                                        .pieces = pieces,
                                        .stride = u32(p.weight.stride / 16),
                                        .steps = steps,
                                        .split_steps = div_up(steps, choice.splits),
                                        .out_first = u32(p.out_first),
                                        .out_stride = u32(p.out_stride),
                                        .out_split = u32(p.out_split),
                                        .bias = p.bias.buffer ? 1u : 0u,
                                        .bias_first = u32(p.rows().first_row)},
                                       {.x = p.x.quantized.values,
                                        .x_scales = p.x.quantized.scales,
                                        .w4 = p.rows().bound(p.weight.stride),
                                        .bias = p.bias.buffer ? p.bias : p.x.quantized.scales,
                                        .out = p.out},
                                       grid_of(choice, p));
}

void check_input(const std::string& step, const MatmulChoice& choice, const MatmulInput& x) {
  bool ready = false;
  switch (choice.kernel) {
    case MatmulKernel::kFloat: ready = static_cast<bool>(x.plain.buffer); break;
    case MatmulKernel::kInt8: ready = x.quantized.values.buffer && x.quantized.scales.buffer; break;
    case MatmulKernel::kMatrix: ready = x.f16.values.buffer && x.f16.scales.buffer; break;
  }
  if (!ready || x.tokens == 0) {
    fail({.code = ErrorCode::kInternal,
          .what = "a matrix product without the input its kernel takes",
          .where = step,
          .got = choice.name()});
  }
}

}  // namespace

uint64_t matmul_scratch_bytes(const MatmulChoice& choice, const Weight& weight, uint64_t tokens) {
  if (choice.splits == 1) return 0;
  int64_t rows = 0;
  for (const WeightPart& part : weight.parts) rows = std::max(rows, part.rows);
  return uint64_t{choice.splits} * tokens * static_cast<uint64_t>(rows) * sizeof(float);
}

uint64_t max_matmul_scratch_bytes(const Capabilities& capabilities, const MatmulShape& shape, const Weight& weight) {
  uint64_t bytes = 0;
  const auto ask = [&](uint64_t tokens, uint64_t most) {
    MatmulShape fewer = shape;
    fewer.tokens = tokens;
    bytes = std::max(bytes, matmul_scratch_bytes(choose_matmul(capabilities, fewer), weight, most));
  };
  // Fewer tokens split further, within the same number of tiles: so it is enough to ask for the fewest. Tiles have a
  // power of two of tokens, those of matrices 64 or twice as many.
  for (uint64_t n = 1; n <= shape.tokens; n *= 2) ask(n, 2 * n);
  for (uint64_t n = 65; n <= shape.tokens; n += 64) ask(n, n + 63);
  return bytes;
}

void record_matmul(Recording& recording, const std::string& step, const MatmulChoice& choice, const Weight& weight,
                   const MatmulInput& x, const BoundBuffer& bias, const MatmulOutput& out, const BoundBuffer& scratch) {
  check_input(step, choice, x);
  const bool split = choice.splits > 1;
  if (split && (!scratch.buffer || scratch.buffer.size() < matmul_scratch_bytes(choice, weight, x.tokens))) {
    fail({.code = ErrorCode::kInternal,
          .what = "a matrix product in parts without scratch memory",
          .where = step,
          .got = choice.name()});
  }
  const uint64_t stride = out.stride != 0 ? out.stride : static_cast<uint64_t>(weight.rows);
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    const WeightPart& part = weight.parts[i];
    const uint64_t rows = static_cast<uint64_t>(part.rows);
    const uint64_t first = out.first + static_cast<uint64_t>(part.first_row);
    const PartProduct product = split ? PartProduct{weight, i, x, {}, scratch, 0, rows, x.tokens * rows}
                                      : PartProduct{weight, i, x, bias, out.buffer, first, stride, 0};
    switch (choice.kernel) {
      case MatmulKernel::kFloat: dispatch_float(recording, step, choice, product); break;
      case MatmulKernel::kInt8: dispatch_int8(recording, step, choice, product); break;
      case MatmulKernel::kMatrix: dispatch_matrix(recording, step, choice, product); break;
    }
    if (!split) continue;
    recording.dispatch<wgsl::MatmulSum>(
        step, {{}, {{"threads", kSumThreads}}},
        {.tokens = u32(x.tokens),
         .rows = u32(rows),
         .splits = choice.splits,
         .out_first = u32(first),
         .out_stride = u32(stride),
         .bias = bias.buffer ? 1u : 0u,
         .bias_first = u32(static_cast<uint64_t>(part.first_row))},
        {.parts = scratch, .bias = bias.buffer ? bias : scratch, .out = out.buffer},
        linear_grid(div_up(x.tokens * rows, kSumThreads), recording.device().capabilities().limits));
  }
}

}  // namespace doppler::gpu
