// Attention over the cache's pages. All query heads that share a kv head go together, so keys and values are read once
// for them. A sequence's rows are split into tiles of rows; where a sequence has one row and there is little to share
// out, it is split by units of keys, whose results are then joined in order. Both give the same numbers.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

constexpr float kNothing = -1e30f;  // lower than any score, yet finite

const Attention& attention_of(const RunState& state, const Op& op) {
  return std::get<Attention>(state.plan->steps[static_cast<size_t>(op.step)].op);
}
int first_seen(const Attention& a, int position) { return a.window > 0 ? std::max(0, position - a.window + 1) : 0; }
int unit_of(int position) { return position / kUnitKeys; }

// The units that the token at `position` sees.
struct UnitRange {
  int first, count;
};
UnitRange seen_units(const Attention& a, int position) {
  const int first = unit_of(first_seen(a, position));
  return {first, unit_of(position) - first + 1};
}

// Rows of an item in a node.
struct ItemRows {
  int first, count;
};
ItemRows rows_of(const PassItem& item, bool logit_rows) {
  return logit_rows ? ItemRows{item.first_logit, item.logit_count} : ItemRows{item.first_row, item.rows};
}
int last_position(const PassItem& item) { return item.position + item.rows - 1; }
int last_seen(const Attention& a, const PassItem& item, int position) {
  return std::min(position + a.ahead, last_position(item));
}

// Where the keys of a sequence lie, in one layer.
class Keys {
 public:
  Keys(const RunState& state, const Attention& a, const Sequence& sequence)
      : cache_(*state.cache), pages_(*state.pages), sequence_(sequence), layer_(a.layer) {}

  // The tiles of unit `u` with positions oldest … newest; returns how many.
  int tiles(int head, int u, int oldest, int newest, KeyTile* out) const {
    const int begin = std::max(u * kUnitKeys, oldest / kKeyTile * kKeyTile);
    const int end = std::min((u + 1) * kUnitKeys, newest + 1);
    int count = 0;
    for (int p = begin; p < end; p += kKeyTile) {
      out[count++] = pages_.tile(layer_, cache_.page(sequence_, layer_, p), head, p);
    }
    return count;
  }

  ReadAhead ahead(int head, int u, int oldest, int newest) const {
    KeyTile some[kUnitTiles];
    const int count = tiles(head, u, oldest, newest, some);
    ReadAhead ahead{};
    for (int t = 0; t < count; ++t) ahead.pieces[t] = some[t].keys;
    return ahead;
  }

 private:
  const KvCache& cache_;
  const KvPages& pages_;
  const Sequence& sequence_;
  const int layer_;
};

// The pieces of a node: of each item in turn, either one for each unit and kv head of its only row, or one for each
// tile of rows and kv head.
class AttendPieces {
 public:
  AttendPieces(const RunState& state, const Attention& a, bool logit_rows)
      : state_(state), a_(a), logit_rows_(logit_rows) {
    int single = 0;
    for (const PassItem& item : state.pass->items) single += rows_of(item, logit_rows).count == 1;
    split_ = single <= kMaxSplitQueries && single * a.kv_heads < 4 * state.threads;
    // Few rows per piece where there is little to share out.
    const int most = std::max(1, kAttendRows / (a.heads / a.kv_heads));
    tile_ = std::clamp(state.rows(logit_rows) * a.kv_heads / (4 * state.threads), 1, most);
    for (const PassItem& item : state.pass->items) count_ += pieces_of(item);
  }

  struct Piece {
    const PassItem* item;
    int head, first, count;  // rows of the node
    int unit;                // the only one, counted from the first that is seen; -1: all
    int part;                // of the split queries
  };

  int count() const { return count_; }

  Piece at(int piece) const {
    const PassItem* item = state_.pass->items.data();
    int part = 0;
    for (int n; piece >= (n = pieces_of(*item)); ++item) {
      piece -= n;
      part += is_split(*item);
    }
    const int head = piece % a_.kv_heads, index = piece / a_.kv_heads;
    const ItemRows rows = rows_of(*item, logit_rows_);
    if (is_split(*item)) return {item, head, rows.first, 1, index, part};
    // Later rows see more keys: tiles alternate between both ends, so that every thread's own_range weighs about the
    // same.
    const int tiles = tiles_of(rows), place = index % 2 ? tiles - 1 - index / 2 : index / 2;
    return {item, head, rows.first + place * tile_, std::min(tile_, rows.count - place * tile_), -1, 0};
  }

  // The part of a split item; -1 where its rows are whole.
  int part_of(const PassItem& wanted) const {
    if (!is_split(wanted)) return -1;
    int part = 0;
    for (const PassItem* item = state_.pass->items.data(); item != &wanted; ++item) part += is_split(*item);
    return part;
  }

 private:
  bool is_split(const PassItem& item) const { return split_ && rows_of(item, logit_rows_).count == 1; }
  int tiles_of(const ItemRows& rows) const { return (rows.count + tile_ - 1) / tile_; }
  int pieces_of(const PassItem& item) const {
    const int each = is_split(item) ? seen_units(a_, last_position(item)).count : tiles_of(rows_of(item, logit_rows_));
    return each * a_.kv_heads;
  }

  const RunState& state_;
  const Attention& a_;
  const bool logit_rows_;
  bool split_ = false;
  int tile_ = 1, count_ = 0;
};

// Parts of a split query's attention: [part][head][unit][dim], highest, total.
float* part_at(const RunState& state, const Attention& a, int part, int head, int unit) {
  const size_t place = static_cast<size_t>(part * a.heads + head) * max_units(a, state.context);
  return state.partials + (place + static_cast<size_t>(unit)) * static_cast<size_t>(a.head_dim + 2);
}

class Attender {
 public:
  Attender(const RunState& state, const Node& node, const Scratch& scratch)
      : s_(state),
        node_(node),
        op_(node.ops[0]),
        a_(attention_of(state, op_)),
        scratch_(scratch),
        group_(a_.heads / a_.kv_heads) {}

  // `next`: what this thread reads after the piece, or null.
  void run(const AttendPieces::Piece& piece, const ReadAhead* next) {
    const bool whole = piece.unit < 0;
    const int rows = piece.count * group_, dim = a_.head_dim;
    for (int r = 0; r < rows; ++r) {
      const int row = piece.first + r / group_, head = piece.head * group_ + r % group_;
      const float* q = s_.at<float>(op_.in[0], row, node_.logit_rows, scratch_) + head * dim;
      float* to = scratch_.queries + static_cast<size_t>(r) * static_cast<size_t>(dim);
      for (int d = 0; d < dim; ++d) to[d] = q[d] * a_.scale;
      const int position = s_.pass->positions[static_cast<size_t>(s_.pass_row(row, node_.logit_rows))];
      scratch_.last[r] = last_seen(a_, *piece.item, position);
      scratch_.first[r] = first_seen(a_, position);
      const bool sink = whole && a_.sinks;
      scratch_.highest[r] = sink ? op_.numbers[static_cast<size_t>(head)] : kNothing;
      scratch_.total[r] = sink ? 1.0f : 0.0f;
    }
    std::fill_n(scratch_.mixed, static_cast<size_t>(rows) * static_cast<size_t>(dim), 0.0f);

    const Keys keys(s_, a_, *piece.item->sequence);
    const QueryTile q{scratch_.queries, scratch_.first, scratch_.last, rows, dim, a_.softcap};
    const SoftmaxState softmax{scratch_.mixed, scratch_.highest, scratch_.total};
    const int oldest = scratch_.first[0], newest = scratch_.last[rows - 1];
    const int from = whole ? unit_of(oldest) : unit_of(oldest) + piece.unit, to = whole ? unit_of(newest) : from;
    for (int u = from; u <= to; ++u) {
      KeyTile tiles[kUnitTiles];
      const int some = keys.tiles(piece.head, u, oldest, newest, tiles);
      ReadAhead following;
      if (u < to) following = keys.ahead(piece.head, u + 1, oldest, newest);
      s_.kernels->attend(q, tiles, some, softmax, scratch_.scores, u < to ? &following : next);
    }
    if (whole) {
      write_rows(piece);
    } else {
      write_parts(piece);
    }
  }

  // What a piece reads first.
  ReadAhead keys_of(const AttendPieces::Piece& piece) const {
    const int newest = last_position(*piece.item), oldest = first_seen(a_, newest);
    return Keys(s_, a_, *piece.item->sequence).ahead(piece.head, unit_of(oldest) + piece.unit, oldest, newest);
  }

  const Attention& attention() const { return a_; }

 private:
  void write_rows(const AttendPieces::Piece& piece) {
    const int dim = a_.head_dim;
    for (int r = 0; r < piece.count * group_; ++r) {
      float* out = s_.at<float>(op_.out, piece.first + r / group_, node_.logit_rows, scratch_) +
                   (piece.head * group_ + r % group_) * dim;
      const float* mixed = scratch_.mixed + static_cast<size_t>(r) * static_cast<size_t>(dim);
      const float inverse = 1.0f / scratch_.total[r];
      for (int d = 0; d < dim; ++d) out[d] = mixed[d] * inverse;
    }
  }

  void write_parts(const AttendPieces::Piece& piece) {
    const int dim = a_.head_dim;
    for (int r = 0; r < group_; ++r) {
      float* part = part_at(s_, a_, piece.part, piece.head * group_ + r, piece.unit);
      std::copy_n(scratch_.mixed + static_cast<size_t>(r) * static_cast<size_t>(dim), dim, part);
      part[dim] = scratch_.highest[r];
      part[dim + 1] = scratch_.total[r];
    }
  }

  const RunState& s_;
  const Node& node_;
  const Op& op_;
  const Attention& a_;
  const Scratch& scratch_;
  const int group_;
};

// Memory that lies in one piece, as attention fetches it.
ReadAhead in_one_piece(const std::byte* data, int dim) {
  ReadAhead ahead{};
  for (int t = 0; data && t < kUnitTiles; ++t) {
    ahead.pieces[t] = reinterpret_cast<const int16_t*>(data) + t * kKeyTile * dim;
  }
  return ahead;
}

}  // namespace

const std::byte* first_keys(const RunState& state, const Node& node, int thread) {
  if (state.rows(node.logit_rows) != 1) return nullptr;
  const Attention& a = attention_of(state, node.ops[0]);
  const AttendPieces pieces(state, a, node.logit_rows);
  const Range own = Work::own_range(pieces.count(), thread, state.threads);
  if (own.begin == own.end) return nullptr;
  const AttendPieces::Piece piece = pieces.at(static_cast<int>(own.begin));
  const int newest = last_position(*piece.item), oldest = first_seen(a, newest);
  const int unit = unit_of(oldest) + std::max(0, piece.unit);
  const ReadAhead ahead = Keys(state, a, *piece.item->sequence).ahead(piece.head, unit, oldest, newest);
  return reinterpret_cast<const std::byte*>(ahead.pieces[0]);
}

size_t max_units(const Attention& a, int context) {
  const int keys = a.window > 0 ? std::min(a.window, context) : context;
  return static_cast<size_t>(keys / kUnitKeys + 2);
}

void run_attend(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next) {
  Attender attender(state, node, scratch);
  const AttendPieces pieces(state, attender.attention(), node.logit_rows);
  const ReadAhead weights = in_one_piece(next, attender.attention().head_dim);
  for (int number; (number = work.next(pieces.count())) >= 0;) {
    const AttendPieces::Piece piece = pieces.at(number);
    ReadAhead after = weights;
    if (piece.unit >= 0 && work.continues(pieces.count(), number)) {
      const AttendPieces::Piece following = pieces.at(number + 1);
      if (following.unit >= 0) after = attender.keys_of(following);
    }
    attender.run(piece, &after);
  }
}

void merge_row(const RunState& state, const Op& op, int row, const Scratch& scratch) {
  const Attention& a = attention_of(state, op);
  const int pass_row = state.pass_row(row, op.logit_rows);
  const PassItem& item = state.pass->items[static_cast<size_t>(state.pass->item_of[static_cast<size_t>(pass_row)])];
  const int part_number = AttendPieces(state, a, op.logit_rows).part_of(item);
  if (part_number < 0) return;
  const int dim = a.head_dim;
  const UnitRange units = seen_units(a, last_position(item));
  float* out = state.at<float>(op.out, row, op.logit_rows, scratch);
  for (int head = 0; head < a.heads; ++head, out += dim) {
    float highest = a.sinks ? op.numbers[static_cast<size_t>(head)] : kNothing;
    float total = a.sinks ? 1.0f : 0.0f;
    std::fill_n(out, dim, 0.0f);
    for (int u = 0; u < units.count; ++u) {
      float* part = part_at(state, a, part_number, head, u);
      state.kernels->merge({out, &highest, &total}, {part, part + dim, part + dim + 1}, dim);
    }
    const float inverse = 1.0f / total;
    for (int d = 0; d < dim; ++d) out[d] *= inverse;
  }
}

}  // namespace doppler::cpu
