// Attention over the cache. All query heads that share a kv head go together, so keys and values are read once for
// them. Many queries are split by rows; a single one is split by units of keys, whose results are then joined in order.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

constexpr float kNothing = -1e30f;  // lower than any score, yet finite

// The units of keys a block can see, and where they lie.
class Units {
 public:
  Units(const RunState& state, const Attention& a) : cache_(*state.cache), layer_(a.layer) {
    const int n = static_cast<int>(state.tokens.size());
    newest_ = state.position + n - 1;
    if (cache_.uses_staging(layer_, n)) {
      base_ = cache_.staging_base(layer_, state.position);
      in_cache_until_ = cache_.kind(layer_) == KvKind::kRing ? state.position - 1 : -1;
    } else {
      base_ = newest_ + 1;  // nothing is staged
      in_cache_until_ = newest_;
    }
  }

  static int of(int position) { return position / kUnitKeys; }

  // The tiles of unit `u` that can hold keys, without those that are older than any that is seen; returns how many.
  int tiles(int head, int u, int oldest_seen, KeyTile* out) const {
    const int low = u * kUnitKeys, high = low + kUnitKeys - 1;
    const Place at = place(u);
    const int keys = std::min({kUnitKeys, at.store.capacity - at.cell, newest_ - low + 1});
    int count = 0;
    for (int t = std::max(0, oldest_seen - low) / kKeyTile; t * kKeyTile < keys; ++t) {
      const int tile = at.cell / kKeyTile + t;
      out[count++] = at.staging ? at.store.tile(head, tile, base_, newest_ - base_, low, high)
                                : at.store.tile(head, tile, 0, in_cache_until_, low, high);
    }
    return count;
  }

  // Where the keys of unit `u` begin.
  const int16_t* keys(int head, int u) const {
    const Place at = place(u);
    return at.store.keys + static_cast<ptrdiff_t>(head * at.store.capacity + at.cell) * at.store.dim;
  }

 private:
  struct Place {
    const KvStore& store;
    int cell;  // of the unit's first key
    bool staging;
  };
  Place place(int u) const {
    const int low = u * kUnitKeys;
    if (low >= base_) return {cache_.staging(layer_), low - base_, true};
    const KvStore& store = cache_.layer(layer_);
    return {store, low % store.capacity, false};
  }

  const KvCache& cache_;
  const int layer_;
  int newest_;          // position of the block's last key
  int base_;            // units from this position on are staged
  int in_cache_until_;  // newest position in the cache itself
};

const Attention& attention_of(const RunState& state, const Op& op) {
  return std::get<Attention>(state.plan->steps[static_cast<size_t>(op.step)].op);
}
int first_seen(const Attention& a, int position) { return a.window > 0 ? std::max(0, position - a.window + 1) : 0; }

// Parts of a single query's attention: [head][unit][dim], highest, total.
float* part_of(const RunState& state, const Attention& a, int head, int unit) {
  return state.partials + (static_cast<size_t>(head) * max_units(a, state.context) + static_cast<size_t>(unit)) *
                              static_cast<size_t>(a.head_dim + 2);
}

class Attender {
 public:
  Attender(const RunState& state, const Node& node, const Scratch& scratch)
      : s_(state),
        node_(node),
        op_(node.ops[0]),
        a_(attention_of(state, op_)),
        scratch_(scratch),
        group_(a_.heads / a_.kv_heads),
        units_(state, a_) {}

  // Rows [first, first + count) of all query heads of one kv head, over all units they see, or over one of them.
  // `next`: what this thread reads after these, or null.
  void run(int kv_head, int first, int count, bool with_sinks, int only_unit = -1, const int16_t* next = nullptr) {
    const int rows = count * group_, dim = a_.head_dim;
    for (int r = 0; r < rows; ++r) {
      const int row = first + r / group_, head = kv_head * group_ + r % group_;
      const float* q = s_.at<float>(op_.in[0], row, node_.logit_rows, scratch_) + head * dim;
      float* to = scratch_.queries + static_cast<size_t>(r) * static_cast<size_t>(dim);
      for (int d = 0; d < dim; ++d) to[d] = q[d] * a_.scale;
      const int position = s_.position + s_.first_row(node_.logit_rows) + row;
      scratch_.last[r] = position;
      scratch_.first[r] = first_seen(a_, position);
      const bool sink = with_sinks && a_.sinks;
      scratch_.highest[r] = sink ? op_.numbers[static_cast<size_t>(head)] : kNothing;
      scratch_.total[r] = sink ? 1.0f : 0.0f;
    }
    std::fill_n(scratch_.mixed, static_cast<size_t>(rows) * static_cast<size_t>(dim), 0.0f);

    const QueryTile q{scratch_.queries, scratch_.first, scratch_.last, rows, dim, a_.softcap};
    const SoftmaxState softmax{scratch_.mixed, scratch_.highest, scratch_.total};
    const int from = only_unit >= 0 ? only_unit : Units::of(scratch_.first[0]);
    const int to = only_unit >= 0 ? only_unit : Units::of(scratch_.last[rows - 1]);
    for (int u = from; u <= to; ++u) {
      KeyTile tiles[kUnitTiles];
      const int some = units_.tiles(kv_head, u, scratch_.first[0], tiles);
      s_.kernels->attend(q, tiles, some, softmax, scratch_.scores, u < to ? units_.keys(kv_head, u + 1) : next);
    }
  }

  void write_rows(int kv_head, int first, int count) {
    const int dim = a_.head_dim;
    for (int r = 0; r < count * group_; ++r) {
      float* out =
          s_.at<float>(op_.out, first + r / group_, node_.logit_rows, scratch_) + (kv_head * group_ + r % group_) * dim;
      const float* mixed = scratch_.mixed + static_cast<size_t>(r) * static_cast<size_t>(dim);
      const float inverse = 1.0f / scratch_.total[r];
      for (int d = 0; d < dim; ++d) out[d] = mixed[d] * inverse;
    }
  }

  void write_parts(int kv_head, int unit) {
    const int dim = a_.head_dim;
    for (int r = 0; r < group_; ++r) {
      float* part = part_of(s_, a_, kv_head * group_ + r, unit);
      std::copy_n(scratch_.mixed + static_cast<size_t>(r) * static_cast<size_t>(dim), dim, part);
      part[dim] = scratch_.highest[r];
      part[dim + 1] = scratch_.total[r];
    }
  }

  const Attention& attention() const { return a_; }
  const Units& units() const { return units_; }

 private:
  const RunState& s_;
  const Node& node_;
  const Op& op_;
  const Attention& a_;
  const Scratch& scratch_;
  const int group_;
  const Units units_;
};

// The units that the block's last token sees.
struct Span {
  int first, count;
};
Span seen_units(const RunState& state, const Attention& a) {
  const int position = state.position + static_cast<int>(state.tokens.size()) - 1;
  const int first = Units::of(first_seen(a, position));
  return {first, Units::of(position) - first + 1};
}

// A single query's pieces: the heads of a unit, unit by unit.
const int16_t* keys_of_piece(const Units& units, const Span& seen, int heads, int piece) {
  return units.keys(piece % heads, seen.first + piece / heads);
}

}  // namespace

const std::byte* first_keys(const RunState& state, const Node& node, int thread) {
  if (state.rows(node.logit_rows) != 1) return nullptr;
  const Attention& a = attention_of(state, node.ops[0]);
  const Span seen = seen_units(state, a);
  const Range own = Work::own_range(seen.count * a.kv_heads, thread, state.threads);
  if (own.begin == own.end) return nullptr;
  return reinterpret_cast<const std::byte*>(
      keys_of_piece(Units(state, a), seen, a.kv_heads, static_cast<int>(own.begin)));
}

size_t max_units(const Attention& a, int context) {
  const int keys = a.window > 0 ? std::min(a.window, context) : context;
  return static_cast<size_t>(keys / kUnitKeys + 2);
}

void run_attend(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next) {
  Attender attender(state, node, scratch);
  const Attention& a = attender.attention();
  const int rows = state.rows(node.logit_rows), heads = a.kv_heads;
  if (rows == 1) {
    const Span units = seen_units(state, a);
    const int pieces = units.count * heads;
    for (int piece; (piece = work.next(pieces)) >= 0;) {
      const int head = piece % heads, unit = piece / heads;
      const int16_t* after = work.continues(pieces, piece) ? keys_of_piece(attender.units(), units, heads, piece + 1)
                                                           : reinterpret_cast<const int16_t*>(next);
      attender.run(head, 0, 1, false, units.first + unit, after);
      attender.write_parts(head, unit);
    }
    return;
  }
  // Few rows per piece where there is little to share out. Later rows see more keys: pieces alternate between both
  // ends, so that every thread's own_range weighs about the same.
  const int most = std::max(1, kAttendRows / (a.heads / a.kv_heads));
  const int tile = std::clamp(rows * heads / (4 * state.threads), 1, most);
  const int pieces = (rows + tile - 1) / tile;
  for (int piece; (piece = work.next(pieces * heads)) >= 0;) {
    const int head = piece % heads;
    const int at = piece / heads, from_end = at % 2 ? pieces - 1 - at / 2 : at / 2;
    const int first = from_end * tile, count = std::min(tile, rows - first);
    attender.run(head, first, count, true);
    attender.write_rows(head, first, count);
  }
}

void merge_row(const RunState& state, const Op& op, int row, const Scratch& scratch) {
  if (state.rows(op.logit_rows) != 1) return;
  const Attention& a = attention_of(state, op);
  const int dim = a.head_dim;
  const Span units = seen_units(state, a);
  float* out = state.at<float>(op.out, row, op.logit_rows, scratch);
  for (int head = 0; head < a.heads; ++head, out += dim) {
    float highest = a.sinks ? op.numbers[static_cast<size_t>(head)] : kNothing;
    float total = a.sinks ? 1.0f : 0.0f;
    std::fill_n(out, dim, 0.0f);
    for (int u = 0; u < units.count; ++u) {
      float* part = part_of(state, a, head, u);
      state.kernels->merge({out, &highest, &total}, {part, part + dim, part + dim + 1}, dim);
    }
    const float inverse = 1.0f / total;
    for (int d = 0; d < dim; ++d) out[d] *= inverse;
  }
}

}  // namespace doppler::cpu
