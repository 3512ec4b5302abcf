// Operations that go on from a sequence's state, a block of tokens in order: every number is made by the same sums
// however the block is cut. `places` says which copy of the state the block goes on from (kNone: from zeros) and which it
// leaves.

// snippet: state_places
const kNone = 0xffffffffu;
struct Places {
  origin: u32,
  left: u32,
}

// kernel: short_conv
// out [tokens, channels] = the last `kernel` tokens of x, each channel by itself, through silu; or, gated, x = B · u and
// the sum times C of rows B, C, u. One thread a channel.
// use: index
// use: activate
// use: state_places

override threads: u32 = 64;
override gated: bool = false;
override silu: bool = false;
const kMostBefore = 15u;

struct Params {
  tokens: u32,
  channels: u32,
  kernel: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> places: Places;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;            // [channels][kernel], the last the token's own
@group(0) @binding(4) var<storage, read_write> states: array<f32>;      // [copies][kernel - 1][channels]
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let c = workgroup_index(id, count) * threads + lane;
  let channels = params.channels;
  if (c >= channels) {
    return;
  }
  let before = params.kernel - 1u;
  var seen: array<f32, kMostBefore>;  // x of the tokens before, the oldest first
  for (var i = 0u; i < before; i++) {
    if (places.origin != kNone) {
      seen[i] = states[(places.origin * before + i) * channels + c];
    }
  }
  for (var t = 0u; t < params.tokens; t++) {
    var now = 0.0;
    if (gated) {
      now = x[t * 3u * channels + c] * x[(t * 3u + 2u) * channels + c];
    } else {
      now = x[t * channels + c];
    }
    var sum = weight[c * params.kernel + before] * now;
    for (var i = 0u; i < before; i++) {
      sum += weight[c * params.kernel + i] * seen[i];
    }
    for (var i = 0u; i + 1u < before; i++) {
      seen[i] = seen[i + 1u];
    }
    seen[before - 1u] = now;
    if (silu) {
      sum *= sigmoid(sum);
    }
    if (gated) {
      sum *= x[(t * 3u + 1u) * channels + c];
    }
    out[t * channels + c] = sum;
  }
  for (var i = 0u; i < before; i++) {
    states[(places.left * before + i) * channels + c] = seen[i];
  }
}

// kernel: delta_net
// The gated delta rule (plan.h), a workgroup for kSide columns of a value head's state: a thread holds kSide rows of one
// of them, `parts` threads all of it.
// use: index
// use: activate
// use: state_places

const kSide = 32u;
override parts: u32 = 4;
override threads: u32 = 128;  // parts · kSide

struct Params {
  tokens: u32,
  key_heads: u32,
  value_heads: u32,
  key_dim: u32,
  value_dim: u32,
  eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> places: Places;
@group(0) @binding(2) var<storage, read> qkv: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<f32>;
@group(0) @binding(4) var<storage, read> a: array<f32>;
@group(0) @binding(5) var<storage, read> decay: array<f32>;
@group(0) @binding(6) var<storage, read> dt: array<f32>;
@group(0) @binding(7) var<storage, read_write> states: array<f32>;  // [copies][value_heads][key_dim][value_dim]
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

var<workgroup> keys: array<f32, threads>;     // of the token; rows past key_dim are zero
var<workgroup> queries: array<f32, threads>;
var<workgroup> sums: array<f32, threads>;     // [part][column]
var<workgroup> squares: array<vec2<f32>, parts>;

fn column_sum(column: u32) -> f32 {
  var sum = sums[column];
  for (var p = 1u; p < parts; p++) {
    sum += sums[p * kSide + column];
  }
  return sum;
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let blocks = (params.value_dim + kSide - 1u) / kSide;
  let group = workgroup_index(id, count);
  if (group >= blocks * params.value_heads) {
    return;
  }
  let head = group / blocks;
  let column = lane % kSide;
  let j = group % blocks * kSide + column;
  let part = lane / kSide;
  let first = part * kSide;
  let inside = j < params.value_dim;
  let origin = (places.origin * params.value_heads + head) * params.key_dim;
  let left = (places.left * params.value_heads + head) * params.key_dim;
  var s: array<f32, kSide>;
  for (var i = 0u; i < kSide; i++) {
    s[i] = 0.0;
    if (places.origin != kNone && inside && first + i < params.key_dim) {
      s[i] = states[(origin + first + i) * params.value_dim + j];
    }
  }
  let all_keys = params.key_heads * params.key_dim;
  let width = 2u * all_keys + params.value_heads * params.value_dim;
  let key_head = head / (params.value_heads / params.key_heads);
  let slope = -exp(decay[head]);
  let shift = dt[head];
  for (var t = 0u; t < params.tokens; t++) {
    let row = t * width + key_head * params.key_dim;
    var q = 0.0;
    var k = 0.0;
    if (lane < params.key_dim) {
      q = qkv[row + lane];
      k = qkv[row + all_keys + lane];
    }
    queries[lane] = q;
    keys[lane] = k;
    workgroupBarrier();
    var known = 0.0;
    var squared = vec2<f32>(0.0);
    for (var i = 0u; i < kSide; i++) {
      let qk = vec2<f32>(queries[first + i], keys[first + i]);
      known += qk.y * s[i];
      squared += qk * qk;
    }
    sums[lane] = known;
    if (column == 0u) {
      squares[part] = squared;
    }
    workgroupBarrier();
    known = column_sum(column);
    squared = squares[0];
    for (var p = 1u; p < parts; p++) {
      squared += squares[p];
    }
    let q_scale = 1.0 / sqrt((squared.x + params.eps) * f32(params.key_dim));
    let k_scale = 1.0 / sqrt(squared.y + params.eps);
    let shifted = a[t * params.value_heads + head] + shift;
    let kept = exp(slope * (max(shifted, 0.0) + log(1.0 + exp(-abs(shifted)))));
    let beta = sigmoid(b[t * params.value_heads + head]);
    var v = 0.0;
    if (inside) {
      v = qkv[t * width + 2u * all_keys + head * params.value_dim + j];
    }
    let change = k_scale * beta * (v - kept * k_scale * known);
    var found = 0.0;
    for (var i = 0u; i < kSide; i++) {
      s[i] = kept * s[i] + keys[first + i] * change;
      found += queries[first + i] * s[i];
    }
    workgroupBarrier();  // all have read the sums
    sums[lane] = found;
    workgroupBarrier();
    if (part == 0u && inside) {
      out[(t * params.value_heads + head) * params.value_dim + j] = q_scale * column_sum(column);
    }
  }
  for (var i = 0u; i < kSide; i++) {
    if (inside && first + i < params.key_dim) {
      states[(left + first + i) * params.value_dim + j] = s[i];
    }
  }
}
