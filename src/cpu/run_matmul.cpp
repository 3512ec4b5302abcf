// Matrix products. Few tokens: rows of the matrix are read once and multiplied with each token in turn. Many: 32 rows
// at a time are unpacked to a tile that stays in cache while all tokens pass.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

constexpr size_t kChunkBytes = 64 << 10;  // of weights that a thread takes at once when tokens are few
constexpr int kMostChunkRows = 512;

// Rows a thread takes at once: whole groups of 32 where the rows are quantised as they come.
int chunk_rows(const MatMulPart& part, bool many) {
  if (many) return kTileRows;
  const int grain = part.out_quantised >= 0 ? kGroup : 4;
  const int rows = static_cast<int>(kChunkBytes / std::max<size_t>(part.a.stride, 1)) / grain * grain;
  return std::clamp(rows, grain, kMostChunkRows);
}

class MatMulRunner {
 public:
  MatMulRunner(const RunState& state, const Node& node, const Scratch& scratch)
      : s_(state), node_(node), scratch_(scratch), k_(*state.kernels), tokens_(state.rows(node.logit_rows)) {}

  void few(const MatMulPart& part, int first, int count) {
    for (int t = 0; t < tokens_; ++t) {
      const void* x = s_.at<std::byte>(part.in, t, node_.logit_rows, scratch_);
      const bool direct = !part.glu && part.softcap == 0 && part.out_quantised < 0;
      float* to = direct ? s_.at<float>(part.out, t, node_.logit_rows, scratch_) + first : scratch_.c[0];
      multiply_rows(k_, part.a, first, count, x, to, scratch_.linear);
      if (part.glu) multiply_rows(k_, part.b, first, count, x, scratch_.c[1], scratch_.linear);
      if (!direct) finish(part, t, first, count, scratch_.c[0], scratch_.c[1]);
    }
  }

  void many(const MatMulPart& part, int first, int count) {
    for (int t = 0; t < tokens_; ++t) scratch_.inputs[t] = s_.at<std::byte>(part.in, t, node_.logit_rows, scratch_);
    multiply_tile(k_, part.a, first, count, scratch_.inputs, tokens_, scratch_.c[0], scratch_.linear);
    if (part.glu) multiply_tile(k_, part.b, first, count, scratch_.inputs, tokens_, scratch_.c[1], scratch_.linear);
    for (int t = 0; t < tokens_; ++t) {
      finish(part, t, first, count, scratch_.c[0] + t * kTileRows, scratch_.c[1] + t * kTileRows);
    }
  }

 private:
  // What follows the product, on rows first … first+count-1 of token t; a and b are overwritten.
  void finish(const MatMulPart& part, int t, int first, int count, float* a, const float* b) {
    if (part.glu) k_.glu(part.glu_params, a, b, a, count);
    if (part.softcap > 0) k_.softcap(a, a, count, part.softcap);
    if (part.out >= 0) {
      std::copy(a, a + count, s_.at<float>(part.out, t, node_.logit_rows, scratch_) + first);
    }
    if (part.out_quantised < 0) return;
    void* blocks = s_.at<std::byte>(part.out_quantised, t, node_.logit_rows, scratch_);
    const int end = first + count;
    for (int r = first; r < end; r += kGroup) {
      quantize_input_group(k_, part.quantised_as, a + (r - first), std::min(kGroup, end - r), blocks, r);
    }
    if (end == part.a.rows) {  // nothing may be left of another value behind the last group
      for (int r = (end + kGroup - 1) / kGroup * kGroup; r % kBlock != 0; r += kGroup) {
        quantize_input_group(k_, part.quantised_as, a, 0, blocks, r);
      }
    }
  }

  const RunState& s_;
  const Node& node_;
  const Scratch& scratch_;
  const Kernels& k_;
  const int tokens_;
};

}  // namespace

void run_matmul(const RunState& state, const Node& node, Work work, const Scratch& scratch) {
  const bool many = state.rows(node.logit_rows) >= state.many_tokens;
  const auto pieces_of = [&](const MatMulPart& part) {
    const int rows = chunk_rows(part, many);
    return (part.a.rows + rows - 1) / rows;
  };
  int pieces = 0;
  for (const MatMulPart& part : node.parts) pieces += pieces_of(part);
  MatMulRunner runner(state, node, scratch);
  for (int piece; (piece = work.next(pieces)) >= 0;) {
    const MatMulPart* part = node.parts.data();
    for (; piece >= pieces_of(*part); ++part) piece -= pieces_of(*part);
    const int rows = chunk_rows(*part, many), first = piece * rows, count = std::min(rows, part->a.rows - first);
    if (many) {
      runner.many(*part, first, count);
    } else {
      runner.few(*part, first, count);
    }
  }
}

}  // namespace doppler::cpu
