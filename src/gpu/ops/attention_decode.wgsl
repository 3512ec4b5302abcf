// Attention of one token over splits of its keys, and how their partial results are put together.

// snippet: merge_partials
// Puts the splits of attention_decode or attention_fused together: out = Σ factor · partial, where a split's factor is
// exp(its max - max of all) / total. For any kernel with the binding `partials: array<vec4<f32>>` and a function
// token_position(), as its first stage: merged(…, i) is the i-th four elements of the [heads · head_dim] result of
// `column`. Needs the snippet splits. Every thread works out its factors itself: all it needs is asked for at
// once, before it is known how many splits have keys, and nobody waits for anybody.
struct Merge {
  heads: u32,
  head_dim: u32,
  splits: u32,
  window: u32,
  column: u32,
}

struct SplitPart {
  highest: f32,
  sum: f32,
  mixed: vec4<f32>,
}

const kNoScore: f32 = -1e30;  // below any score

fn used_splits(merge: Merge) -> u32 {
  let position = token_position();
  let keys = position + 1u - oldest_key(position, merge.window);
  return active_splits(keys, merge.splits, 64u);
}

fn read_split(merge: Merge, s: u32, i: u32, head: u32) -> SplitPart {
  let there = min(s, merge.splits - 1u);
  let width = merge.heads * merge.head_dim / 4u;
  let first = merge.column * merge.splits * (width + merge.heads);
  let pair = partials[first + merge.splits * width + there * merge.heads + head];
  return SplitPart(pair.x, pair.y, partials[first + there * width + i]);
}

// What lies in a split without keys is anything at all.
fn only(used: bool, part: SplitPart) -> SplitPart {
  return SplitPart(select(kNoScore, part.highest, used), select(0.0, part.sum, used),
                   select(vec4<f32>(0.0), part.mixed, used));
}

fn joined(a: SplitPart, b: SplitPart) -> SplitPart {
  let highest = max(a.highest, b.highest);
  let of_a = exp(a.highest - highest);
  let of_b = exp(b.highest - highest);
  return SplitPart(highest, of_a * a.sum + of_b * b.sum, of_a * a.mixed + of_b * b.mixed);
}

fn merged(merge: Merge, i: u32) -> vec4<f32> {
  let head = i * 4u / merge.head_dim;
  var all = SplitPart(kNoScore, 0.0, vec4<f32>(0.0));
  var used = 1u;
  for (var s = 0u; s < used; s += 8u) {
    let a = read_split(merge, s, i, head);
    let b = read_split(merge, s + 1u, i, head);
    let c = read_split(merge, s + 2u, i, head);
    let d = read_split(merge, s + 3u, i, head);
    let e = read_split(merge, s + 4u, i, head);
    let f = read_split(merge, s + 5u, i, head);
    let g = read_split(merge, s + 6u, i, head);
    let h = read_split(merge, s + 7u, i, head);
    used = used_splits(merge);
    let ab = joined(only(s < used, a), only(s + 1u < used, b));
    let cd = joined(only(s + 2u < used, c), only(s + 3u < used, d));
    let ef = joined(only(s + 4u < used, e), only(s + 5u < used, f));
    let gh = joined(only(s + 6u < used, g), only(s + 7u < used, h));
    all = joined(all, joined(joined(ab, cd), joined(ef, gh)));
  }
  return all.mixed / all.sum;
}

// kernel: attention_decode
// Attention of one token whose query is rotated and whose key and value are in the cache. Workgroup (split, block):
// a block is up to kHeads query heads of one kv head. The splits' results meet in attention_merge, or in the first
// stage of the kernel that follows (attention_decode.wgsl).
// use: paged_state
// use: kv_cache
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
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> q: array<f32>;        // [heads · head_dim]
@group(0) @binding(3) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> weights: array<f32>;  // q norm, k norm [head_dim] each, sinks [heads]
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let position = state.position;
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
  let split = Split(first, min(first + each, position + 1u), position, kv_head, params.kv_heads, params.table);

  read_tile(split, first, thread);
  for (var d = thread; d < head_dim; d += threads) {
    query[d] = params.scale * queries_at(0u, first_head, head_count, d);
  }
  let has_sink = params.sinks == 1u && id.x == 0u;
  var sinks = Heads(0.0);
  if (has_sink) {
    sinks = sinks_at(first_head, head_count);
  }
  workgroupBarrier();
  attend(split, thread, params.softcap, sinks, has_sink);
  write_split(SplitOut(id.x, params.splits, params.heads, first_head, head_count, 0u), thread);
}

// kernel: attention_merge
// The splits of a decode step's attention, put together: out [heads · head_dim].
// use: state
// use: splits
// use: merge_partials

override threads: u32 = 64;

struct Params {
  heads: u32,
  head_dim: u32,
  splits: u32,
  window: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

fn token_position() -> u32 {
  return state.position;
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let merge = Merge(params.heads, params.head_dim, params.splits, params.window, 0u);
  let i = id.x * threads + thread;
  if (i < params.heads * params.head_dim / 4u) {
    out[i] = merged(merge, i);
  }
}
