// A workgroup of a split attention.

// snippet: splits
// How the keys one token sees are shared out among workgroups: `splits` of them at most, each with a whole number of
// tiles. A few keys make few splits, so that little is left to merge.
fn oldest_key(position: u32, window: u32) -> u32 {
  return select(0u, position + 1u - window, window != 0u && position + 1u > window);
}

fn keys_of_split(keys: u32, splits: u32, tile: u32) -> u32 {
  let even = (keys + splits - 1u) / splits;
  return (even + tile - 1u) / tile * tile;
}

fn active_splits(keys: u32, splits: u32, tile: u32) -> u32 {
  let each = keys_of_split(keys, splits, tile);
  return (keys + each - 1u) / each;
}

// snippet: split
// One token's attention over a split of its keys: what goes in and what comes out. lib/attend.wgsl does the work.
override threads: u32 = 256;       // at least head_dim
override head_dim: u32 = 64;
override made_here: bool = false;  // the newest key and value are in new_key and new_value, not yet in the cache

const kTeam: u32 = 32;
const kTile: u32 = 64;
const kLow: f32 = -1e30;  // below any score

struct Split {
  first: u32,     // position of its first key
  end: u32,       // behind its last
  newest: u32,    // position of the token itself
  kv_head: u32,
  kv_heads: u32,
  table: u32,     // where the pages of its layers begin among the state's
}

// Where the keys of a tile lie, on two pages at most: it may begin anywhere.
struct Tile {
  low: u32,     // the page of its first key
  high: u32,    // the page after that
  offset: u32,  // of its first key in its page
}

fn page_at(split: Split, number: u32) -> u32 {
  return state.pages[split.table + number] * page_size(split.kv_heads, head_dim / 8u);
}

fn tile_at(split: Split, first: u32) -> Tile {
  let number = first / kPage;
  return Tile(page_at(split, number), page_at(split, min(number + 1u, split.newest / kPage)), first % kPage);
}

var<workgroup> query: array<Heads, head_dim>;  // times the scale
var<workgroup> new_key: array<u32, head_dim / 2u>;
var<workgroup> new_value: array<u32, head_dim / 2u>;  // in steps, as the cache has it
var<workgroup> new_step: f32;

struct NormSums {
  query: Heads,
  key: f32,
}

// Chunks of a tile's i-th key and value, zeros where the key is not in this split, or not in the cache yet.
fn is_cached(split: Split, key: u32, chunk: u32) -> bool {
  return (key < split.end) & (chunk < head_dim / 8u) & !(made_here & (key == split.newest));
}

fn page_of(tile: Tile, i: u32) -> u32 {
  return select(tile.low, tile.high, tile.offset + i >= kPage);
}

fn slot_of(tile: Tile, i: u32) -> u32 {
  return (tile.offset + i) % kPage;
}

// Without branches, so that all reads of a thread are on their way together.
fn read_key(split: Split, first: u32, tile: Tile, i: u32, chunk: u32) -> vec4<u32> {
  let there = is_cached(split, first + i, chunk);
  let at = key_index(page_of(tile, i), split.kv_head, chunk, slot_of(tile, i), head_dim / 8u);
  return select(vec4<u32>(0u), cache[select(0u, at, there)], there);
}

fn read_value(split: Split, first: u32, tile: Tile, i: u32, chunk: u32) -> vec4<u32> {
  let there = is_cached(split, first + i, chunk);
  let at = value_index(page_of(tile, i), split.kv_head, slot_of(tile, i), chunk, split.kv_heads, head_dim / 8u);
  return select(vec4<u32>(0u), cache[select(0u, at, there)], there);
}

fn new_key_chunk(chunk: u32) -> vec4<u32> {
  let i = min(chunk, head_dim / 8u - 1u) * 4u;
  return vec4<u32>(new_key[i], new_key[i + 1u], new_key[i + 2u], new_key[i + 3u]);
}

fn new_value_chunk(chunk: u32) -> vec4<u32> {
  let i = min(chunk, head_dim / 8u - 1u) * 4u;
  return vec4<u32>(new_value[i], new_value[i + 1u], new_value[i + 2u], new_value[i + 3u]);
}

// The step of a tile's i-th value, zero where there is none.
fn read_step(split: Split, first: u32, tile: Tile, i: u32) -> f32 {
  let there = is_cached(split, first + i, 0u);
  let at = step_index(page_of(tile, i), split.kv_head, slot_of(tile, i), split.kv_heads, head_dim / 8u);
  return select(0.0, bitcast<f32>(cache[select(0u, at / 4u, there)][at % 4u]), there);
}

// Where a split's result goes: `partials` holds [splits][heads · head_dim] sums of prob · value, then [splits][heads]
// vec4 (highest score, sum of probs, 0, 0). attention_decode.wgsl puts the splits together.
struct SplitOut {
  split: u32,
  splits: u32,
  heads: u32,
  first_head: u32,
  head_count: u32,
  column: u32,    // of several tokens that are computed together, each with partial results of its own
}

// Where a column's partial results begin, in f32.
fn column_partials(out: SplitOut) -> u32 {
  return out.column * out.splits * out.heads * (head_dim + 4u);
}

fn write_dim(out: SplitOut, d: u32, value: Heads) {
  for (var h = 0u; h < kHeads; h++) {
    if (h < out.head_count) {
      partials[column_partials(out) + (out.split * out.heads + out.first_head + h) * head_dim + d] = head_of(value, h);
    }
  }
}

fn write_sums(out: SplitOut, highest_score: Heads, total: Heads) {
  for (var h = 0u; h < out.head_count; h++) {
    let at = column_partials(out) + out.splits * out.heads * head_dim +
             (out.split * out.heads + out.first_head + h) * 4u;
    partials[at] = head_of(highest_score, h);
    partials[at + 1u] = head_of(total, h);
  }
}

// Dim d of the queries of a block of heads, zero for heads the block does not have.
fn query_at(offset: u32, first_head: u32, head_count: u32, h: u32, d: u32) -> f32 {
  if (h >= min(kHeads, head_count)) {
    return 0.0;
  }
  return q[offset + (first_head + h) * head_dim + d];
}

fn queries_at(offset: u32, first_head: u32, head_count: u32, d: u32) -> Heads {
  return make_heads(query_at(offset, first_head, head_count, 0u, d), query_at(offset, first_head, head_count, 1u, d),
                    query_at(offset, first_head, head_count, 2u, d), query_at(offset, first_head, head_count, 3u, d));
}

fn sink_at(first_head: u32, head_count: u32, h: u32) -> f32 {
  return weights[2u * head_dim + first_head + min(h, head_count - 1u)];
}

fn sinks_at(first_head: u32, head_count: u32) -> Heads {
  return make_heads(sink_at(first_head, head_count, 0u), sink_at(first_head, head_count, 1u),
                    sink_at(first_head, head_count, 2u), sink_at(first_head, head_count, 3u));
}

// snippet: split_out
// The groups' parts of a split's result (lib/attend.wgsl), added up and written to `partials`.

// Adds up `round_dims` dims of every chunk over the groups, from dim `round` of the chunk on.
fn write_round(round: u32, out: SplitOut, thread: u32) {
  let chunks = head_dim / 8u;
  workgroupBarrier();
  for (var o = thread; o < chunks * round_dims; o += threads) {
    var total = Heads(0.0);
    for (var g = 0u; g < key_groups(); g++) {
      total += scratch[o % round_dims * (threads + 1u) + g * chunks + o / round_dims];
    }
    write_dim(out, o / round_dims * 8u + round + o % round_dims, total);
  }
  workgroupBarrier();
}

fn keep_for_round(i: u32, value: Heads, thread: u32) {
  scratch[i % round_dims * (threads + 1u) + thread] = value;
}

fn write_split(out: SplitOut, thread: u32) {
  let chunks = head_dim / 8u;
  if (thread / chunks < key_groups() && thread % chunks == 0u) {
    scores[thread / chunks] = sum;
  }
  for (var round = 0u; round < 8u; round += round_dims) {
    if (round == 0u) {
      keep_for_round(0u, mixed.a, thread);
    }
    if (round <= 1u && 1u < round + round_dims) {
      keep_for_round(1u, mixed.b, thread);
    }
    if (round <= 2u && 2u < round + round_dims) {
      keep_for_round(2u, mixed.c, thread);
    }
    if (round <= 3u && 3u < round + round_dims) {
      keep_for_round(3u, mixed.d, thread);
    }
    if (round <= 4u && 4u < round + round_dims) {
      keep_for_round(4u, mixed.e, thread);
    }
    if (round <= 5u && 5u < round + round_dims) {
      keep_for_round(5u, mixed.f, thread);
    }
    if (round <= 6u && 6u < round + round_dims) {
      keep_for_round(6u, mixed.g, thread);
    }
    if (7u < round + round_dims) {
      keep_for_round(7u, mixed.h, thread);
    }
    write_round(round, out, thread);
  }
  if (thread == 0u) {
    var total = Heads(0.0);
    for (var g = 0u; g < key_groups(); g++) {
      total += scores[g];
    }
    write_sums(out, highest, total);
  }
}
