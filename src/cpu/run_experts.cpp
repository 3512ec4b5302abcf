// Products with the matrices of the chosen experts. Tokens are grouped by expert, so that each expert's rows are read
// once for all tokens that chose it; experts nobody chose are not touched.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {

void run_experts(const RunState& state, const Node& node, Work work, const Scratch& scratch) {
  const Op& op = node.ops[0];
  const ExpertMatMul& experts = std::get<ExpertMatMul>(state.plan->steps[static_cast<size_t>(op.step)].op);
  const Kernels& kernels = *state.kernels;
  const int rows = state.rows(node.logit_rows), k = experts.k;
  const int expert_count = static_cast<int>(state.plan->steps[static_cast<size_t>(op.step)].weights[0].shape[0]);
  const auto chosen = [&](int row, int place) {
    return static_cast<int>(state.at<float>(op.in[1], row, node.logit_rows, scratch)[place]);
  };

  // Every thread sorts for itself: it is little work, and nobody has to wait.
  int32_t* start = scratch.expert_start;
  std::fill(start, start + expert_count + 1, 0);
  for (int row = 0; row < rows; ++row) {
    for (int place = 0; place < k; ++place) ++start[chosen(row, place) + 1];
  }
  for (int e = 0; e < expert_count; ++e) start[e + 1] += start[e];
  for (int row = 0; row < rows; ++row) {
    for (int place = 0; place < k; ++place) scratch.expert_tokens[start[chosen(row, place)]++] = row * k + place;
  }
  for (int e = expert_count; e > 0; --e) start[e] = start[e - 1];
  start[0] = 0;

  const int decoded = state.gemv_rows(node.logit_rows, op.in[0], op.matrix.input());
  const size_t segment = input_row_bytes(op.matrix.input(), op.matrix.cols);
  const auto input = [&](int entry) {
    const std::byte* x = state.at<std::byte>(op.in[0], entry / k, node.logit_rows, scratch);
    return x + (experts.per_expert ? static_cast<size_t>(entry % k) * segment : 0);
  };
  const auto output = [&](int entry, int first) {
    return state.at<float>(op.out, entry / k, node.logit_rows, scratch) + (entry % k) * op.matrix.rows + first;
  };

  const int each = (op.matrix.rows + kTileRows - 1) / kTileRows;  // pieces of one expert
  const auto used = [&](int e) { return start[e + 1] > start[e]; };
  int pieces = 0;
  for (int e = 0; e < expert_count; ++e) pieces += used(e) ? each : 0;
  for (int piece; (piece = work.next(pieces)) >= 0;) {
    int e = 0;
    for (; !used(e) || piece >= each; ++e) piece -= used(e) ? each : 0;
    const Linear matrix = op.matrix.expert(e);
    const int32_t* entries = scratch.expert_tokens + start[e];
    const int count = start[e + 1] - start[e];
    const int first = piece * kTileRows, n = std::min(kTileRows, matrix.rows - first);
    // The rows of decoded tokens come first. Where GEMV and GEMM read the same numbers, the expert's own count decides.
    int few = 0;
    if (batch_invariant(matrix.input())) {
      few = count < kMinGemmTokens ? count : 0;
    } else {
      while (few < count && entries[few] / k < decoded) ++few;
    }
    for (int i = 0; i < few; i += kMaxGemvTokens) {
      const int some = std::min(kMaxGemvTokens, few - i);
      const void* x[kMaxGemvTokens];
      for (int t = 0; t < some; ++t) x[t] = input(entries[i + t]);
      gemv_rows(kernels, matrix, first, n, x, some, scratch.c[0], kTileRows, scratch.linear);
      for (int t = 0; t < some; ++t) std::copy_n(scratch.c[0] + t * kTileRows, n, output(entries[i + t], first));
    }
    // A tile's results are bounded by the pass; an expert's tokens may be up to rows · k places.
    for (int from = few; from < count; from += rows) {
      const int some = std::min(count - from, rows);
      for (int i = 0; i < some; ++i) scratch.inputs[i] = input(entries[from + i]);
      gemm_tiles(kernels, matrix, first, n, scratch.inputs, some, scratch.c[0], scratch.linear);
      for (int i = 0; i < some; ++i) std::copy_n(scratch.c[0] + i * kTileRows, n, output(entries[from + i], first));
    }
  }
}

}  // namespace doppler::cpu
