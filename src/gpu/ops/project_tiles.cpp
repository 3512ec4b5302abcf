#include "gpu/ops/project_tiles.h"

#include <algorithm>

#include "gpu/ops/weight_layout.h"
#include "gpu/webgpu/recording.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kMaxThreads = 448, kFewThreads = 256;
constexpr uint64_t kSmallWorkgroups = 3;  // of kFewThreads on a multiprocessor: what an H200 reads fastest with
constexpr uint64_t kPieceThreads = 512;   // where results are left as integers, by whole pieces
constexpr uint64_t kMaxLanes = 32;

// As many threads per row as leave few of them idle.
uint64_t lanes_for(uint64_t pieces, uint32_t subgroup) {
  uint64_t best = 4;
  double best_used = 0;
  for (uint64_t lanes = subgroup ? std::min<uint64_t>(subgroup, kMaxLanes) : kMaxLanes; lanes >= 4; lanes /= 2) {
    const double used = static_cast<double>(pieces) / static_cast<double>(div_up(pieces, lanes) * lanes);
    if (used > best_used) {
      best = lanes;
      best_used = used;
    }
    if (used >= 0.7) break;
  }
  return best;
}

uint64_t steps_of(uint64_t pieces, const Tiles& t) { return div_up(div_up(pieces, t.lanes), 4 / t.rows); }

}  // namespace

uint64_t pieces_of(uint64_t cols) { return std::max<uint32_t>(1, div_up(cols, kPiece)); }

bool decodes_with_int8(const Capabilities& capabilities, DType weights) {
  return capabilities.int8_dot && takes_int8(weights) &&
         !names_variant("float", wish_for(capabilities.kernels, "matvec"));
}

uint32_t one_subgroup_size(const Capabilities& capabilities) {
  if (names_variant("plain", wish_for(capabilities.kernels, "matvec"))) return 0;
  const bool one = capabilities.subgroups && capabilities.subgroup_min == capabilities.subgroup_max;
  return one && capabilities.subgroup_min >= 4 ? capabilities.subgroup_min : 0;
}

Tiles piece_tiles(const Capabilities& capabilities, uint64_t cols) {
  const uint64_t pieces = pieces_of(cols);
  Tiles t{lanes_for(pieces, one_subgroup_size(capabilities)), 1, 2, 1, 1};
  t.groups = std::min<uint64_t>(capabilities.limits.invocations, kPieceThreads) / t.lanes;
  if (t.groups * t.rows < 2 * kPiece) t.rows = 4;
  while (t.rows_per_workgroup() % (2 * kPiece) != 0) t.bands *= 2;
  t.steps = steps_of(pieces, t);
  return t;
}

Tiles project_tiles(const Capabilities& capabilities, uint64_t rows_of_all, uint64_t cols, bool pairs) {
  const uint64_t pieces = pieces_of(cols), quads = 8 * pieces;
  const uint64_t most = std::min<uint64_t>(capabilities.limits.invocations, kMaxThreads);
  Tiles t{lanes_for(pieces, one_subgroup_size(capabilities)), 1, 1, 1, 1};
  t.groups = most / t.lanes;
  const auto workgroups = [&] { return div_up(rows_of_all, t.rows_per_workgroup()); };
  // Several rows per team share what is read of x, as long as every multiprocessor has a workgroup; but a workgroup
  // that makes one turn only is done sooner if all its weights are asked for at the start, which two steps are.
  for (const uint64_t rows : {4u, 2u}) {
    t.rows = rows;
    const bool many = workgroups() > 2 * kMultiprocessors;
    if (workgroups() * 10 >= kMultiprocessors * 9 && (many || steps_of(pieces, t) <= 2)) break;
    t.rows = 1;
  }
  if (pairs) t.rows = std::max<uint64_t>(t.rows, 2);
  // Fewer threads make more workgroups; each must still make the norm and the int8 form of x, at best in one turn.
  const uint64_t few = std::min(most, quads <= most ? std::max(quads, kFewThreads) : kFewThreads);
  while (workgroups() * 10 < kMultiprocessors * 9 && (t.groups - 1) * t.lanes >= few) --t.groups;
  while (t.groups > 1 && t.threads() % 8 != 0) --t.groups;  // threads that put a piece's quads must be neighbours
  // Very many rows: a few workgroups per multiprocessor, each of which makes its x once and goes on. Small ones, unless
  // x is so long that few threads would take many turns to make it.
  if (workgroups() > 2 * kMultiprocessors) {
    uint64_t together = 1;
    if (quads <= 4 * kFewThreads) {
      t.rows = 2;
      t.groups = std::min(most, kFewThreads) / t.lanes;
      together = kSmallWorkgroups;
    }
    t.bands = div_up(workgroups(), together * kMultiprocessors);
  }
  t.steps = steps_of(pieces, t);
  return t;
}

uint64_t turns_of(uint64_t cols, const Tiles& tiles) { return div_up(8 * pieces_of(cols), tiles.threads()); }

uint64_t project_workgroup_bytes(uint64_t cols, bool int8, const Tiles& tiles) {
  return pieces_of(cols) * (128 + (int8 ? 48 : 0)) + tiles.threads() * (16 + 8 + 8) + 256;
}

}  // namespace doppler::gpu
