// First half of the greedy choice, and of sampling: the best (key, id) of every 2048 consecutive logits. The kernel
// that makes the logits may leave such pairs itself instead, one a workgroup.
// use: index
// use: sort_key
// use: best
// use: penalised

override threads: u32 = 256;
const kEach: u32 = 8;  // logits a thread, all read at once

struct Params {
  vocab: u32,
  penalty: f32,  // 1: none
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;  // f32
@group(0) @binding(2) var<storage, read> seen: array<u32>;    // a bit a token
@group(0) @binding(3) var<storage, read_write> maxima: array<vec2<u32>>;

fn pair_at(i: u32) -> vec2<u32> {
  return select(kNoPair, vec2<u32>(penalised_key(min(i, params.vocab - 1u)), i), i < params.vocab);
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let group = workgroup_index(id, count);
  if (group * threads * kEach >= params.vocab) {
    return;
  }
  let i = group * threads * kEach + lane;
  let a = pair_at(i);
  let b = pair_at(i + threads);
  let c = pair_at(i + 2u * threads);
  let d = pair_at(i + 3u * threads);
  let e = pair_at(i + 4u * threads);
  let f = pair_at(i + 5u * threads);
  let g = pair_at(i + 6u * threads);
  let h = pair_at(i + 7u * threads);
  let mine = better_of(better_of(better_of(a, b), better_of(c, d)), better_of(better_of(e, f), better_of(g, h)));
  let best = workgroup_best(mine, lane);
  if (lane == 0u) {
    maxima[group] = best;
  }
}
