// One decode step's attention from raw projections, in one dispatch, for one token or for a column each of tokens of
// different sequences (z of the grid): per-head norm (if the model has one) and rotary
// embedding of q and k, the store of k and v, and attention as in attention_decode. Every workgroup prepares the
// queries it needs; the one with the newest keys also prepares k and v, uses them from its own memory (workgroups have
// no order), and the first of a kv head's blocks stores them.
// use: paged_state
// use: kv_cache
// use: pack_f16
// use: rope_rotation
// use: splits
// use: heads = one | two | four
// use: soft_cap = exp
// use: eight
// use: split
// use: attend
// use: split_out

struct Params {
  heads: u32,
  kv_heads: u32,
  table: u32,       // where the pages of its group begin among the state's
  window: u32,      // 0: all keys are seen
  splits: u32,      // at most; of the grid
  scale: f32,
  softcap: f32,     // 0: none
  sinks: u32,       // 1: one logit per head joins the softmax
  norm: u32,        // 1: per-head norm of q and k
  eps: f32,
  norm_offset: f32,
  q_offset: u32,    // where the token's projections start, in f32
  k_offset: u32,
  v_offset: u32,
  row: u32,         // f32 from one column's projections to the next one's
  many: u32,        // 1: state.position is how many columns there are, state.pages has their positions, then…
  table_stride: u32,  // …so far apart their pages, from `table` on
}

// 0: all of it. Columns of one sequence see each other, so their keys and values are stored first: 1: the store alone;
// 2: the rest, with all keys in the cache (made_here is false).
override stage: u32 = 0;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> k: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> v: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> weights: array<f32>;  // q norm, k norm [head_dim] each, sinks [heads]
@group(0) @binding(6) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read_write> cache: array<vec4<u32>>;
@group(0) @binding(8) var<storage, read_write> partials: array<f32>;

var<workgroup> value_most: array<vec4<u32>, (head_dim + 31u) / 32u>;  // of the new value's chunks, as bits; zeros behind

var<private> value_first: vec4<f32>;   // of this thread's chunk, where it has one
var<private> value_second: vec4<f32>;

var<private> new_chunk: vec4<u32>;     // in steps, and…
var<private> new_value_step: u32;      // …the step, as bits

// A chunk a thread, of those that are not the first to make scores; 0xffffffff: none.
fn chunk_of(thread: u32) -> u32 {
  return select(0xffffffffu, thread - threads / 2u, thread >= threads / 2u && thread - threads / 2u < head_dim / 8u);
}

// The new value in steps; the other threads see it behind the next barrier.
fn pack_new(thread: u32) {
  let chunk = chunk_of(thread);
  if (chunk == 0xffffffffu) {
    return;
  }
  var four = value_most[0];
  for (var i = 1u; i < (head_dim + 31u) / 32u; i++) {
    four = max(four, value_most[i]);
  }
  let most = max(max(four.x, four.y), max(four.z, four.w));
  new_chunk = pack_value(value_first, value_second, inverse_step(most));
  new_value_step = step_of(most);
  for (var i = 0u; i < 4u; i++) {
    new_value[4u * chunk + i] = new_chunk[i];
  }
  if (chunk == 0u) {
    new_step = bitcast<f32>(new_value_step);
  }
}

// The new key and value, to the cache: last, since nobody waits for it.
fn store_new(split: Split, thread: u32) {
  let chunks = head_dim / 8u;
  let chunk = chunk_of(thread);
  if (chunk == 0xffffffffu) {
    return;
  }
  let page = page_at(split, split.newest / kPage);
  let slot = split.newest % kPage;
  cache[key_index(page, split.kv_head, chunk, slot, chunks)] = new_key_chunk(chunk);
  cache[value_index(page, split.kv_head, slot, chunk, split.kv_heads, chunks)] = new_chunk;
  if (chunk == 0u) {
    let step_at = step_index(page, split.kv_head, slot, split.kv_heads, chunks);
    cache[step_at / 4u][step_at % 4u] = new_value_step;
  }
}

// Reads the split's first tile, and takes `head_count` queries through norm and rope into `query` and, where the split
// holds the newest key, k into new_key and v to pack_new(). What does not depend on the position is asked for first,
// everything before the first wait.
fn prepare(split: Split, column: u32, first_head: u32, head_count: u32, thread: u32) {
  let half = head_dim / 2u;
  let quads = head_dim / 4u;
  // Thread j owns dims j and j + half of all queries; of the upper half of the threads, thread j owns dims 2j, 2j + 1
  // of the key and their partners, and chunk j of the value.
  let for_key = thread >= threads / 2u;
  let j = thread % (threads / 2u);
  var low = Heads(0.0);
  var high = Heads(0.0);
  var gain_low = 0.0;
  var gain_high = 0.0;
  if (!for_key && j < half) {
    let first_q = params.q_offset + column * params.row;
    low = queries_at(first_q, first_head, head_count, j);
    high = queries_at(first_q, first_head, head_count, j + half);
    gain_low = params.norm_offset + weights[j];
    gain_high = params.norm_offset + weights[j + half];
  }
  var key_low = vec2<f32>(0.0);
  var key_high = vec2<f32>(0.0);
  var key_gain_low = vec2<f32>(0.0);
  var key_gain_high = vec2<f32>(0.0);
  if (for_key && j < head_dim / 8u) {
    let at = (params.v_offset + column * params.row) / 2u + split.kv_head * half + 4u * j;
    value_first = vec4<f32>(v[at], v[at + 1u]);
    value_second = vec4<f32>(v[at + 2u], v[at + 3u]);
  }
  if (for_key && j < quads) {
    let at = (params.k_offset + column * params.row) / 2u + split.kv_head * half + j;
    key_low = k[at];
    key_high = k[at + quads];
    let gain = head_dim + 2u * j;
    key_gain_low = params.norm_offset + vec2<f32>(weights[gain], weights[gain + 1u]);
    key_gain_high = params.norm_offset + vec2<f32>(weights[gain + half], weights[gain + half + 1u]);
  }
  read_tile(split, split.first, thread);
  let turn = rope_rotation(split.newest, min(select(j, 2u * j, for_key), half - 1u), half);
  let odd_turn = rope_rotation(split.newest, min(2u * j + 1u, half - 1u), half);

  if (params.norm == 1u) {
    let sums = norm_sums(low * low + high * high, dot(key_low, key_low) + dot(key_high, key_high), thread);
    let factor = 1.0 / sqrt(sums.query / f32(head_dim) + params.eps);
    low *= factor * gain_low;
    high *= factor * gain_high;
    let key_factor = 1.0 / sqrt(sums.key / f32(head_dim) + params.eps);
    key_low *= key_factor * key_gain_low;
    key_high *= key_factor * key_gain_high;
  }
  if (!for_key && j < half) {
    query[j] = (low * turn.x - high * turn.y) * params.scale;
    query[j + half] = (high * turn.x + low * turn.y) * params.scale;
  }
  if (for_key && j < quads) {
    let c = vec2<f32>(turn.x, odd_turn.x);
    let s = vec2<f32>(turn.y, odd_turn.y);
    new_key[j] = pack_f16(key_low * c - key_high * s);
    new_key[j + quads] = pack_f16(key_high * c + key_low * s);
  }
  if (for_key && j < (head_dim / 8u + 3u) / 4u * 4u) {
    value_most[j / 4u][j % 4u] = largest(value_first, value_second);  // of a chunk past the end, zero
  }
  workgroupBarrier();
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let column = id.z;
  var position = state.position;
  if (params.many == 1u) {
    if (column >= position) {
      return;
    }
    position = state.pages[column];
  }
  let oldest = oldest_key(position, params.window);
  let each = keys_of_split(position + 1u - oldest, params.splits, kTile);
  let first = oldest + id.x * each;
  if (first > position) {
    return;
  }
  let heads_per_kv = params.heads / params.kv_heads;  // query heads of a kv head
  let blocks = (heads_per_kv + kHeads - 1u) / kHeads;
  let kv_head = id.y / blocks;
  let first_head = kv_head * heads_per_kv + id.y % blocks * kHeads;
  let head_count = min(kHeads, (kv_head + 1u) * heads_per_kv - first_head);
  let split = Split(first, min(first + each, position + 1u), position, kv_head, params.kv_heads,
                    params.table + column * params.table_stride);

  let stores = split.end == position + 1u && id.y % blocks == 0u;
  if (stage == 1u && !stores) {
    return;
  }
  prepare(split, column, first_head, head_count, thread);
  if (stage != 2u) {
    pack_new(thread);
  }
  if (stage == 1u) {
    store_new(split, thread);
    return;
  }
  let has_sink = params.sinks == 1u && id.x == 0u;
  var sinks = Heads(0.0);
  if (has_sink) {
    sinks = sinks_at(first_head, head_count);
  }
  attend(split, thread, params.softcap, sinks, has_sink);
  write_split(SplitOut(id.x, params.splits, params.heads, first_head, head_count, column), thread);
  if (stage == 0u && stores) {
    store_new(split, thread);
  }
}
