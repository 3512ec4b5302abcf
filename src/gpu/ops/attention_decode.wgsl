// Attention of one token whose query is rotated and whose key and value are in the cache. Workgroup (split, block):
// a block is up to kHeads query heads of one kv head. The splits' results meet in attention_merge, or in the first
// stage of the kernel that follows (lib/merge_partials.wgsl).
// use: state
// use: kv_cache
// use: splits
// use: heads = one | two | four
// use: soft_cap
// use: eight
// use: split
// use: attend
// use: split_out

struct Params {
  heads: u32,
  kv_heads: u32,
  capacity: u32,
  window: u32,      // 0: all keys are seen
  splits: u32,      // at most; of the grid
  scale: f32,
  softcap: f32,     // 0: none
  sinks: u32,       // 1: one logit a head joins the softmax
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
  let share = params.heads / params.kv_heads;  // query heads of a kv head
  let blocks = (share + kHeads - 1u) / kHeads;
  let kv_head = id.y / blocks;
  let first_head = kv_head * share + id.y % blocks * kHeads;
  let head_count = min(kHeads, (kv_head + 1u) * share - first_head);
  let split = Split(first, min(first + each, position + 1u), position, kv_head, params.kv_heads, params.capacity);

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
  write_split(SplitOut(id.x, params.splits, params.heads, first_head, head_count), thread);
}
