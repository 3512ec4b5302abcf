// Attention over the cache. All query heads that share a kv head go together, so keys and values are read once for
// them. Many queries are split by rows; few are split by keys, in parts whose borders depend on the number of keys
// only, and joined afterwards in order.
#include <algorithm>
#include <cmath>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

constexpr float kNothing = -1e30f;  // lower than any score, yet finite
constexpr int kLeastSplitTiles = 8;

// The keys a block can see: a cache, then perhaps the block's own fresh keys.
struct Keys {
  struct Source {
    const KvStore* store;
    int base, newest, tiles;
  };
  Source sources[2];
  int count = 0;
  int tiles = 0;

  void add(const KvStore& store, int base, int newest) {
    const int used = (std::min(store.capacity, newest + 1) + kKeyTile - 1) / kKeyTile;
    sources[count++] = {&store, base, newest, used};
    tiles += used;
  }
  KeyTile tile(int head, int t) const {
    const Source& s = t < sources[0].tiles ? sources[0] : sources[1];
    return s.store->tile(head, t < sources[0].tiles ? t : t - sources[0].tiles, s.base, s.newest);
  }
};

Keys visible_keys(const RunState& state, int layer) {
  Keys keys;
  const int n = static_cast<int>(state.tokens.size());
  const KvStore& cache = state.cache->layer(layer);
  if (state.cache->is_ring(layer) && n > 1) {
    keys.add(cache, 0, state.position - 1);
    keys.add(state.cache->fresh(layer), state.position, n - 1);
  } else {
    keys.add(cache, 0, state.position + n - 1);
  }
  return keys;
}

int rows_at_once(const Attention& a) { return std::max(1, kAttendRows / (a.heads / a.kv_heads)); }
bool split_by_keys(const Attention& a, int rows) { return rows <= std::min(kSplitRows, rows_at_once(a)); }

struct Splits {
  int count, tiles_each;
};
Splits splits_of(const Keys& keys) {
  const int each = std::max(kLeastSplitTiles, (keys.tiles + kMostSplits - 1) / kMostSplits);
  return {(keys.tiles + each - 1) / each, each};
}

class Attender {
 public:
  Attender(const RunState& state, const Node& node, const Scratch& scratch)
      : s_(state),
        node_(node),
        op_(node.ops[0]),
        a_(std::get<Attention>(state.plan->steps[static_cast<size_t>(op_.step)].op)),
        scratch_(scratch),
        group_(a_.heads / a_.kv_heads),
        keys_(visible_keys(state, a_.layer)) {}

  const Keys& keys() const { return keys_; }

  // Rows [first, first + count) of all query heads of one kv head, over key tiles [from, to).
  void run(int kv_head, int first, int count, int from, int to, bool with_sinks) {
    const int rows = count * group_, dim = a_.head_dim;
    for (int r = 0; r < rows; ++r) {
      const int row = first + r / group_, head = kv_head * group_ + r % group_;
      const float* q = s_.at<float>(op_.in[0], row, node_.logit_rows, scratch_) + head * dim;
      float* to_q = scratch_.queries + static_cast<size_t>(r) * static_cast<size_t>(dim);
      for (int d = 0; d < dim; ++d) to_q[d] = q[d] * a_.scale;
      const int position = s_.position + s_.first_row(node_.logit_rows) + row;
      scratch_.last[r] = position;
      scratch_.first[r] = a_.window > 0 ? std::max(0, position - a_.window + 1) : 0;
      const bool sink = with_sinks && a_.sinks;
      scratch_.highest[r] = sink ? op_.numbers[static_cast<size_t>(head)] : kNothing;
      scratch_.total[r] = sink ? 1.0f : 0.0f;
    }
    std::fill_n(scratch_.mixed, static_cast<size_t>(rows) * static_cast<size_t>(dim), 0.0f);

    const QueryTile q{scratch_.queries, scratch_.first, scratch_.last, rows, dim, a_.softcap};
    const SoftmaxState softmax{scratch_.mixed, scratch_.highest, scratch_.total};
    const int oldest = scratch_.first[0], newest = scratch_.last[rows - 1];
    KeyTile tiles[kKeyTilesAtOnce];
    int held = 0;
    for (int t = from; t < to; ++t) {
      tiles[held] = keys_.tile(kv_head, t);
      const int32_t* p = tiles[held].positions;
      const bool seen = std::any_of(p, p + kKeyTile, [&](int32_t x) { return x >= oldest && x <= newest; });
      if (seen && ++held == kKeyTilesAtOnce) {
        s_.kernels->attend(q, tiles, held, softmax, scratch_.scores);
        held = 0;
      }
    }
    if (held > 0) s_.kernels->attend(q, tiles, held, softmax, scratch_.scores);
  }

  void write_rows(int kv_head, int first, int count) {
    const int dim = a_.head_dim;
    for (int r = 0; r < count * group_; ++r) {
      float* out = s_.at<float>(op_.out, first + r / group_, node_.logit_rows, scratch_) +
                   (kv_head * group_ + r % group_) * dim;
      const float* mixed = scratch_.mixed + static_cast<size_t>(r) * static_cast<size_t>(dim);
      const float inverse = 1.0f / scratch_.total[r];
      for (int d = 0; d < dim; ++d) out[d] = mixed[d] * inverse;
    }
  }

  // Part `split` of [row][head][split][dim + 2]: the mixture, its highest score, its total.
  void write_parts(int kv_head, int rows, int split) {
    const int dim = a_.head_dim;
    for (int r = 0; r < rows * group_; ++r) {
      const int row = r / group_, head = kv_head * group_ + r % group_;
      float* part = s_.partials + ((static_cast<size_t>(row) * static_cast<size_t>(a_.heads) +
                                    static_cast<size_t>(head)) * kMostSplits + static_cast<size_t>(split)) *
                                      static_cast<size_t>(dim + 2);
      std::copy_n(scratch_.mixed + static_cast<size_t>(r) * static_cast<size_t>(dim), dim, part);
      part[dim] = scratch_.highest[r];
      part[dim + 1] = scratch_.total[r];
    }
  }

  const Attention& attention() const { return a_; }

 private:
  const RunState& s_;
  const Node& node_;
  const Op& op_;
  const Attention& a_;
  const Scratch& scratch_;
  const int group_;
  const Keys keys_;
};

}  // namespace

void run_attend(const RunState& state, const Node& node, Counter& counter, const Scratch& scratch) {
  Attender attender(state, node, scratch);
  const Attention& a = attender.attention();
  const int rows = state.rows(node.logit_rows), heads = a.kv_heads;
  const bool by_keys = split_by_keys(a, rows);
  const Splits splits = splits_of(attender.keys());
  const int tile = rows_at_once(a);
  const int each = by_keys ? splits.count : (rows + tile - 1) / tile;
  for (int piece; (piece = counter.fetch_add(1, std::memory_order_relaxed)) < each * heads;) {
    const int head = piece % heads;
    if (by_keys) {
      const int split = piece / heads, from = split * splits.tiles_each;
      attender.run(head, 0, rows, from, std::min(from + splits.tiles_each, attender.keys().tiles), false);
      attender.write_parts(head, rows, split);
    } else {  // the last rows see the most keys: they go first, so that threads end together
      const int first = (each - 1 - piece / heads) * tile, count = std::min(tile, rows - first);
      attender.run(head, first, count, 0, attender.keys().tiles, true);
      attender.write_rows(head, first, count);
    }
  }
}

void merge_row(const RunState& state, const Op& op, int row, const Scratch& scratch) {
  const Attention& a = std::get<Attention>(state.plan->steps[static_cast<size_t>(op.step)].op);
  const int dim = a.head_dim;
  if (!split_by_keys(a, state.rows(op.logit_rows))) return;
  const int splits = splits_of(visible_keys(state, a.layer)).count;
  float* out = state.at<float>(op.out, row, op.logit_rows, scratch);
  for (int head = 0; head < a.heads; ++head, out += dim) {
    const float* parts = state.partials + (static_cast<size_t>(row) * static_cast<size_t>(a.heads) +
                                           static_cast<size_t>(head)) * kMostSplits * static_cast<size_t>(dim + 2);
    const auto part = [&](int i) { return parts + static_cast<size_t>(i) * static_cast<size_t>(dim + 2); };
    float highest = a.sinks ? op.numbers[static_cast<size_t>(head)] : kNothing;
    for (int i = 0; i < splits; ++i) highest = std::max(highest, part(i)[dim]);
    float total = a.sinks ? std::exp(op.numbers[static_cast<size_t>(head)] - highest) : 0.0f;
    std::fill_n(out, dim, 0.0f);
    for (int i = 0; i < splits; ++i) {
      const float factor = std::exp(part(i)[dim] - highest);
      total += factor * part(i)[dim + 1];
      state.kernels->axpy(factor, part(i), out, dim);
    }
    for (int d = 0; d < dim; ++d) out[d] /= total;
  }
}

}  // namespace doppler::cpu
