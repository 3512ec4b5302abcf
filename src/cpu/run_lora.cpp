// What adapters add to a matrix's product: two thin products for each row whose sequence has some. A piece of work is a
// part of one row, cut in the same places whoever else is there, so that a row's numbers are its own.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

constexpr int kRanks = 16;      // rows of A in a piece of work
constexpr int kColumns = 1024;  // columns of a product in a piece of work

int pieces_of(int all, int each) { return (all + each - 1) / each; }

const PlacedPair* pair_of(const Op& op, const AdapterUse& use) {
  const size_t number = static_cast<size_t>(use.adapter);
  return number < op.pairs.size() && op.pairs[number].pair ? &op.pairs[number] : nullptr;
}

void down(const RunState& s, const Node& node, const AdaptedRow& adapted, int first, const Scratch& scratch) {
  const Op& op = node.ops[0];
  const float* x = s.at<float>(op.in[0], adapted.row, node.logit_rows, scratch);
  float* thin = s.at<float>(op.out, adapted.row, node.logit_rows, scratch);
  for (const AdapterUse& use : adapted.uses) {
    const PlacedPair* placed = pair_of(op, use);
    if (!placed || first >= placed->pair->rank) continue;
    const LoraPair& pair = *placed->pair;
    const size_t stride = static_cast<size_t>(pair.in) * sizeof(float);
    const float* a = pair.a.data() + static_cast<size_t>(first) * static_cast<size_t>(pair.in);
    s.kernels->formats[kFormatF32].dot(a, stride, std::min(kRanks, pair.rank - first), x, pair.in,
                                       thin + placed->first + first);
  }
}

void up(const RunState& s, const Node& node, const AdaptedRow& adapted, int first, const Scratch& scratch) {
  const Op& op = node.ops[0];
  const float* thin = s.at<float>(op.in[0], adapted.row, node.logit_rows, scratch);
  float* out = s.at<float>(op.out, adapted.row, node.logit_rows, scratch) + first;
  for (const AdapterUse& use : adapted.uses) {
    const PlacedPair* placed = pair_of(op, use);
    if (!placed) continue;
    const LoraPair& pair = *placed->pair;
    const int count = std::min(kColumns, pair.out - first);
    const float* b = pair.b.data() + first;
    for (int r = 0; r < pair.rank; ++r, b += pair.out) {
      s.kernels->axpy(use.scale * pair.scale * thin[placed->first + static_cast<size_t>(r)], b, out, count);
    }
  }
}

}  // namespace

void run_lora(const RunState& state, const Node& node, Work work, const Scratch& scratch) {
  const Op& op = node.ops[0];
  const bool first_half = op.kind == OpKind::kLoraDown;
  int longest = 0;
  for (const PlacedPair& placed : op.pairs) {
    if (placed.pair) longest = std::max(longest, first_half ? placed.pair->rank : placed.pair->out);
  }
  const std::vector<AdaptedRow>& rows = state.adapted(node.logit_rows);
  const int each = first_half ? kRanks : kColumns, of_row = pieces_of(longest, each);
  const int pieces = static_cast<int>(rows.size()) * of_row;
  for (int piece; (piece = work.next(pieces)) >= 0;) {
    const AdaptedRow& row = rows[static_cast<size_t>(piece / of_row)];
    (first_half ? down : up)(state, node, row, piece % of_row * each, scratch);
  }
}

}  // namespace doppler::cpu
