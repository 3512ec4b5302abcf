// First half of the greedy choice, and of sampling: the best (key, id) of every `part` consecutive logits. The kernel
// that makes the logits may leave such pairs itself instead, one a workgroup.
// use: index
// use: sort_key
// use: best
// use: penalised

override threads: u32 = 256;

struct Params {
  vocab: u32,
  part: u32,     // logits a workgroup
  penalty: f32,  // 1: none
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;  // f32
@group(0) @binding(2) var<storage, read> seen: array<u32>;    // a bit a token
@group(0) @binding(3) var<storage, read_write> maxima: array<vec2<u32>>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let group = workgroup_index(id, count);
  let first = group * params.part;
  if (first >= params.vocab) {
    return;
  }
  var mine = kNoPair;
  for (var i = first + lane; i < min(first + params.part, params.vocab); i += threads) {
    let pair = vec2<u32>(penalised_key(i), i);
    if (better(pair, mine)) {
      mine = pair;
    }
  }
  let best = workgroup_best(mine, lane);
  if (lane == 0u) {
    maxima[group] = best;
  }
}
