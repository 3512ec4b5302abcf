// Element by element, or row by row: additions, copies, soft-caps, gated activations, RMSNorm.

// snippet: activate
// Gated activations. kind 0: gelu_tanh(g) · u   1: silu(g) · u   2: g · sigmoid(alpha · g) · (u + 1), g and u clamped by
// `limit`.   3: sigmoid(g) · u

// The cut keeps exp from overflowing, which WGSL leaves undefined; sigmoid(-80) is 2e-35.
fn sigmoid(v: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-v, 80.0)));
}

fn activate(kind: u32, g: f32, u: f32, limit: f32, alpha: f32) -> f32 {
  if (kind == 0u) {
    // 0.5 · (1 + tanh(t)) is sigmoid(2t), without the cancellation.
    return g * sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u;
  }
  if (kind == 1u) {
    return g * sigmoid(g) * u;
  }
  if (kind == 3u) {
    return sigmoid(g) * u;
  }
  // By select, which lets NaN through.
  let cut = select(g, limit, g > limit);
  let linear = select(select(u, limit, u > limit), -limit, u < -limit);
  return cut * sigmoid(alpha * cut) * (linear + 1.0);
}

// snippet: soft_cap = tanh
// cap · tanh(x / cap). Beyond 20 the hyperbolic tangent is 1 in f32; some devices' own overflows there. Cut by select,
// which lets NaN through.
fn soft_cap(x: f32, cap: f32) -> f32 {
  let t = x / cap;
  return cap * tanh(select(select(t, 20.0, t > 20.0), -20.0, t < -20.0));
}

// snippet: soft_cap = exp
// The same for the scores of several heads at once, by exp. The two round differently: neither can stand in for the
// other without changing results.
fn soft_cap(x: Heads, cap: f32) -> Heads {
  let t = x / cap;
  let e = exp(2.0 * select(select(t, Heads(20.0), t > Heads(20.0)), Heads(-20.0), t < Heads(-20.0)));
  return cap * (1.0 - 2.0 / (e + 1.0));
}

// kernel: add
// out[i] = a[i] + scale · b[i], i < count.
// use: index

override threads: u32 = 256;
const kEach: u32 = 4;  // elements per thread, `threads` apart

struct Params {
  count: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(group, groups) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      out[i] = a[i] + params.scale * b[i];
    }
  }
}

// kernel: copy
// out[i] = in[i] in words of 16 bytes. Also the yardstick: its bandwidth is what other kernels are measured by.
// use: index

override threads: u32 = 256;
const kEach: u32 = 4;  // words per thread, `threads` apart

struct Params {
  count: u32,  // of 16-byte words
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(id, count) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      out[i] = input[i];
    }
  }
}

// kernel: softcap
// out[i] = cap · tanh(x[i] / cap), i < count.
// use: index
// use: soft_cap = tanh

override threads: u32 = 256;

struct Params {
  count: u32,
  cap: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(group, groups) * threads + lane;
  if (i < params.count) {
    out[i] = soft_cap(x[i], params.cap);
  }
}

// kernel: scale
// out = x · factor · (1 + beta · ln(1 + ⌊position / length⌋)), row t of position state.position + t.
// use: index
// use: state

override threads: u32 = 256;

struct Params {
  count: u32,
  width: u32,  // of a row
  factor: f32,
  beta: f32,
  length: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(group, groups) * threads + lane;
  if (i < params.count) {
    let turns = (state.position + i / params.width) / params.length;
    out[i] = x[i] * params.factor * (1.0 + params.beta * log(1.0 + f32(turns)));
  }
}

// kernel: glu
// out[i] = a(gate) · up. Gate and up lie apart (two buffers) or interleaved in the first (gate, up, gate, up, …). A gate
// may be one for all columns of a row.
// use: index
// use: activate

override threads: u32 = 256;
override activation: u32 = 0;  // see elementwise.wgsl
override interleaved: bool = false;
override one_gate: bool = false;
const kEach: u32 = 4;  // elements per thread, `threads` apart

struct Params {
  count: u32,
  limit: f32,
  alpha: f32,
  columns: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(id, count) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      if (interleaved) {
        out[i] = activate(activation, gate[2u * i], gate[2u * i + 1u], params.limit, params.alpha);
      } else if (one_gate) {
        out[i] = activate(activation, gate[i / params.columns], up[i], params.limit, params.alpha);
      } else {
        out[i] = activate(activation, gate[i], up[i], params.limit, params.alpha);
      }
    }
  }
}

// kernel: part
// out = the part `index` of every `parts` groups of `width` columns.
// use: index

override threads: u32 = 256;

struct Params {
  count: u32,
  width: u32,
  parts: u32,
  index: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  if (i < params.count) {
    out[i] = x[(i / params.width * params.parts + params.index) * params.width + i % params.width];
  }
}

// kernel: norm
// RMSNorm: out = x / sqrt(mean(x²) + eps) · (offset + weight), over groups of `width` elements (a row, or a head).
// One workgroup per group.
// use: index
// use: reduce = plain | subgroup

override threads: u32 = 256;

struct Params {
  groups: u32,
  width: u32,
  eps: f32,
  offset: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let group = workgroup_index(id, count);
  if (group >= params.groups) {
    return;
  }
  let first = group * params.width;
  var squares = 0.0;
  for (var i = lane; i < params.width; i += threads) {
    let v = x[first + i];
    squares += v * v;
  }
  let mean = workgroup_sum(squares, lane) / f32(params.width);
  let factor = 1.0 / sqrt(mean + params.eps);
  for (var i = lane; i < params.width; i += threads) {
    out[first + i] = x[first + i] * factor * (params.offset + weight[i]);
  }
}
