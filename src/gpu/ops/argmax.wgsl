// The greedy choice of a token, and what sampling shares with it.

// snippet: sort_key
// Logits as unsigned numbers in the same order, so that no NaN or infinity is ever compared as a float: a larger key is
// a larger logit, -0 and 0 are equal, and NaN is above everything, so that whoever looks for the best one learns of it.
fn sort_key(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return 0xffffffffu;
  }
  if (bits == 0x80000000u) {
    return 0x80000000u;
  }
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn is_finite_key(key: u32) -> bool {
  return key > 0x007fffffu && key < 0xff800000u;
}

fn key_bits(key: u32) -> u32 {
  return select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u);
}

// (key, id): the larger key wins; between equal ones the lower id.
fn better(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y);
}

// snippet: best
// The best (key, id) of a workgroup of 256 threads, the same in every thread. Call in uniform control flow; waits.
const kNoPair: vec2<u32> = vec2<u32>(0u, 0xffffffffu);
var<workgroup> pairs: array<vec2<u32>, threads>;
var<workgroup> row_best: array<vec2<u32>, 16>;
var<workgroup> best_pair: vec2<u32>;

fn better_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, better(b, a));
}

fn workgroup_best(mine: vec2<u32>, lane: u32) -> vec2<u32> {
  pairs[lane] = mine;
  workgroupBarrier();
  if (lane < 16u) {
    var best = pairs[lane];
    for (var i = 16u; i < 256u; i += 16u) {
      best = better_of(best, pairs[i + lane]);
    }
    row_best[lane] = best;
  }
  workgroupBarrier();
  if (lane == 0u) {
    var best = row_best[0];
    for (var i = 1u; i < 16u; i++) {
      best = better_of(best, row_best[i]);
    }
    best_pair = best;
  }
  return workgroupUniformLoad(&best_pair);
}

// The best of `count` pairs in `maxima`, from `first` on.
fn best_of_maxima(first: u32, count: u32, lane: u32) -> vec2<u32> {
  var mine = kNoPair;
  for (var i = lane; i < count; i += threads) {
    mine = better_of(mine, maxima[first + i]);
  }
  return workgroup_best(mine, lane);
}

// snippet: penalised
// The key of logit i after the repetition penalty: tokens already in the text (`seen`, a bit each) have a positive logit
// divided and a negative one multiplied.
fn penalised_key(i: u32) -> u32 {
  var bits = logits[i];
  if (params.penalty != 1.0 && (seen[i / 32u] & (1u << (i % 32u))) != 0u) {
    let logit = bitcast<f32>(bits);
    let key = sort_key(bits);
    if (is_finite_key(key)) {
      bits = bitcast<u32>(select(logit * params.penalty, logit / params.penalty, key > 0x80000000u));
    }
  }
  return sort_key(bits);
}

// snippet: commit_token
// By one thread: a token was chosen. Writes it down, or its complement where the best key is that of no finite number;
// marks it as seen and moves on to the next.
fn commit_token(token: u32, best_key: u32, advance: u32) {
  let at = state.produced;
  if (at < arrayLength(&out_tokens)) {
    out_tokens[at] = select(~token, token, is_finite_key(best_key));
  }
  if (token / 32u < arrayLength(&seen)) {
    seen[token / 32u] |= 1u << (token % 32u);
  }
  state.token = token;
  state.position += advance;
  state.draw += 1u;
  state.produced = at + 1u;
}

// kernel: argmax
// First half of the greedy choice, and of sampling: the best (key, id) of every 2048 consecutive logits. The kernel
// that makes the logits may leave such pairs itself instead, one per workgroup.
// use: index
// use: sort_key
// use: best
// use: penalised

override threads: u32 = 256;
const kEach: u32 = 8;  // logits per thread, all read at once

struct Params {
  vocab: u32,
  penalty: f32,  // 1: none
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;  // f32
@group(0) @binding(2) var<storage, read> seen: array<u32>;    // a bit per token
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

// kernel: argmax_pick
// Second half of the greedy choice: the best of the pairs is the next token. One workgroup.
// use: state
// use: sort_key
// use: best
// use: commit_token

override threads: u32 = 256;

struct Params {
  count: u32,    // pairs
  advance: u32,  // tokens that this step added to the context
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> maxima: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> state: State;
@group(0) @binding(3) var<storage, read_write> out_tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> seen: array<u32>;

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) lane: u32) {
  let best = best_of_maxima(0u, params.count, lane);
  if (lane == 0u) {
    commit_token(best.y, best.x, params.advance);
  }
}

// kernel: batch_pick
// The greedy choice of every column that makes logits (project_batch.wgsl): the best of its pairs. A workgroup a column.
// use: state
// use: sort_key
// use: best

override threads: u32 = 256;

struct Params {
  count: u32,  // pairs of a column
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> maxima: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> out_tokens: array<u32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  if (id.x >= state.draw) {
    return;
  }
  let best = best_of_maxima(id.x * params.count, params.count, lane);
  if (lane == 0u) {
    out_tokens[id.x] = select(~best.y, best.y, is_finite_key(best.x));  // as commit_token()
  }
}
