// One pass of flash attention: a unit of keys against a tile of query rows, with the softmax kept running so that no
// score outlives the pass. Written once over the vector of the including file.
#pragma once

#include "cpu/row_ops_impl.h"

namespace doppler::cpu::DOPPLER_ISA {
namespace {

constexpr int kVectors = kKeyTile / kLanes;        // of one key tile
constexpr int kScoreTiles = kLanes == 16 ? 2 : 1;  // tiles scored together
constexpr int kScoreRows = kLanes == 16 ? 8 : 4;   // rows scored together
constexpr int kScorePitch = kUnitKeys;             // scores [rows][kScorePitch]
constexpr int kLineElements = 32;                  // keys' numbers of a cache line
constexpr int kMixRows = 4;                        // rows mixed together
constexpr int kMixVectors = kLanes == 16 ? 4 : 2;  // value vectors mixed together

// A tile's keys by number, for masks.
constexpr int32_t kKeyNumbers[kKeyTile] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// scores[r][t][key] = query r · the key's whole numbers, for R rows and T tiles. `fetch`: the tiles' values are fetched
// meanwhile.
template <int R, int T>
void score(const float* queries, int dim, const KeyTile* tiles, float* scores, bool fetch) {
  Vf sum[R][T * kVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < T * kVectors; ++v) sum[r][v] = zero();
  }
  for (int d = 0; d < dim; ++d) {
    if (fetch) __builtin_prefetch(tiles[d % T].values + d / T * T * kKeyTile, 0, 2);
    Vf keys[T * kVectors];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) keys[t * kVectors + v] = load_i16(tiles[t].keys + d * kKeyTile + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vf q = set1(queries[r * dim + d]);
#pragma GCC unroll 4
      for (int v = 0; v < T * kVectors; ++v) sum[r][v] = fma(q, keys[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < T * kVectors; ++v) store(scores + r * kScorePitch + v * kLanes, sum[r][v]);
  }
}

// As many rows as fit in groups of R, from row `r` on; returns the first row left over.
template <int R, int T>
int score_groups(const QueryTile& q, const KeyTile* tiles, float* scores, int r) {
  for (; r + R <= q.rows; r += R) {
    score<R, T>(q.queries + static_cast<size_t>(r) * static_cast<size_t>(q.dim), q.dim, tiles, scores + r * kScorePitch,
                r == 0);
  }
  return r;
}

template <int T>
void score_rows(const QueryTile& q, const KeyTile* tiles, float* scores) {
  int r = score_groups<kScoreRows, T>(q, tiles, scores, 0);
  r = score_groups<4, T>(q, tiles, scores, r);
  r = score_groups<2, T>(q, tiles, scores, r);
  score_groups<1, T>(q, tiles, scores, r);
}

inline float exp_one(float x) {
  float lanes[kLanes];
  store(lanes, vexp(set1(x)));
  return lanes[0];
}

// By how much what was mixed so far and what comes new count from now on.
struct Shares {
  float kept, added;
};
inline Shares join_totals(float& highest, float& total, float new_highest, float new_total) {
  const float top = new_highest > highest ? new_highest : highest;
  const Shares shares{exp_one(highest - top), exp_one(new_highest - top)};
  highest = top;
  total = total * shares.kept + new_total * shares.added;
  return shares;
}

// Turns a row of scores into the unit's weights, each times its value's scale, and joins their total to the row's.
inline Shares weigh(const QueryTile& q, int row, const KeyTile* tiles, int count, const SoftmaxState& state,
                    float* scores) {
  const int vectors = count * kVectors;
  const auto seen = [&](int i) {
    const int32_t position = tiles[i / kVectors].position;
    return between(kKeyNumbers + (i % kVectors) * kLanes, q.first[row] - position, q.last[row] - position);
  };
  bool some = false;
  Vf most = set1(-3e38f);
  for (int i = 0; i < vectors; ++i) {
    Vf s = mul(load(scores + i * kLanes), load(tiles[i / kVectors].key_scales + (i % kVectors) * kLanes));
    if (q.softcap > 0) s = mul(set1(q.softcap), vtanh(mul(s, set1(1.0f / q.softcap))));
    store(scores + i * kLanes, s);
    const Vm mask = seen(i);
    some |= any(mask);
    most = select(mask, max(most, s), most);
  }
  if (!some) {
    for (int i = 0; i < vectors; ++i) store(scores + i * kLanes, zero());
    return {1.0f, 0.0f};
  }
  const float highest = max_lanes(most);
  const Vf top = set1(highest);
  Vf total = zero();
  for (int i = 0; i < vectors; ++i) {
    const Vm mask = seen(i);
    const Vf weight = select(mask, vexp(sub(load(scores + i * kLanes), top)), zero());
    total = add(total, weight);
    const Vf scale = load(tiles[i / kVectors].value_scales + (i % kVectors) * kLanes);
    store(scores + i * kLanes, select(mask, mul(weight, scale), zero()));
  }
  return join_totals(state.highest[row], state.total[row], highest, sum_lanes(total));
}

// mixed = mixed · kept + new · added
inline Vf join(Vf mixed, Vf fresh, float kept, float added) { return fma(fresh, set1(added), mul(mixed, set1(kept))); }

// Joins Σ weight · value to mixed, over R rows and V vectors of columns, of which the last may be partial. `next`: what
// is read next, or null; it is fetched meanwhile, and these columns have their share of it.
template <int R, int V>
void mix(const KeyTile* tiles, int count, const float* weights, const Shares* shares, float* mixed, int dim, int column,
         int last_lanes, const ReadAhead* next) {
  constexpr int kEach = V * kLanes;  // of them a key of these
  const auto lanes_of = [&](int v) { return v == V - 1 ? last_lanes : kLanes; };
  Vf sum[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = zero();
  }
  for (int t = 0; t < count; ++t) {
    const int16_t* ahead = next ? next->pieces[t] : nullptr;
    for (int j = 0; j < kKeyTile; ++j) {
      for (int i = 0; ahead && i < kEach; i += kLineElements) {
        __builtin_prefetch(ahead + column * kKeyTile + j * kEach + i, 0, 2);
      }
      const int16_t* row = tiles[t].values + static_cast<size_t>(j) * static_cast<size_t>(dim) + column;
      Vf value[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        value[v] =
            v == V - 1 && last_lanes < kLanes ? load_i16_n(row + v * kLanes, last_lanes) : load_i16(row + v * kLanes);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Vf w = set1(weights[r * kScorePitch + t * kKeyTile + j]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = fma(w, value[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* to = mixed + r * dim + column + v * kLanes;
      store_part(to, join(load_part(to, lanes_of(v)), sum[r][v], shares[r].kept, shares[r].added), lanes_of(v));
    }
  }
}

template <int R>
void mix_rows(const KeyTile* tiles, int count, const float* weights, const Shares* shares, float* mixed, int dim,
              const ReadAhead* next) {
  int column = 0;
  for (; column + kMixVectors * kLanes <= dim; column += kMixVectors * kLanes) {
    mix<R, kMixVectors>(tiles, count, weights, shares, mixed, dim, column, kLanes, next);
  }
  for (; column < dim; column += kLanes) {
    const int left = dim - column;
    mix<R, 1>(tiles, count, weights, shares, mixed, dim, column, left < kLanes ? left : kLanes, next);
  }
}

void attend(const QueryTile& q, const KeyTile* tiles, int count, const SoftmaxState& state, float* scratch,
            const ReadAhead* next) {
  float* scores = scratch;
  Shares* shares = reinterpret_cast<Shares*>(scratch + static_cast<size_t>(q.rows) * kScorePitch);
  int t = 0;
  for (; t + kScoreTiles <= count; t += kScoreTiles) score_rows<kScoreTiles>(q, tiles + t, scores + t * kKeyTile);
  for (; t < count; ++t) score_rows<1>(q, tiles + t, scores + t * kKeyTile);
  for (int r = 0; r < q.rows; ++r) shares[r] = weigh(q, r, tiles, count, state, scores + r * kScorePitch);
  int r = 0;
  const size_t dim = static_cast<size_t>(q.dim);
  for (; r + kMixRows <= q.rows; r += kMixRows) {
    mix_rows<kMixRows>(tiles, count, scores + r * kScorePitch, shares + r, state.mixed + static_cast<size_t>(r) * dim,
                       q.dim, r == 0 ? next : nullptr);
  }
  for (; r < q.rows; ++r) {
    mix_rows<1>(tiles, count, scores + r * kScorePitch, shares + r, state.mixed + static_cast<size_t>(r) * dim, q.dim,
                r == 0 ? next : nullptr);
  }
}

void merge(const SoftmaxState& into, const SoftmaxState& part, int dim) {
  const Shares shares = join_totals(*into.highest, *into.total, *part.highest, *part.total);
  by_vector(dim, [&](int i, int lanes) {
    store_part(into.mixed + i,
               join(load_part(into.mixed + i, lanes), load_part(part.mixed + i, lanes), shares.kept, shares.added),
               lanes);
  });
}

}  // namespace
}  // namespace doppler::cpu::DOPPLER_ISA
