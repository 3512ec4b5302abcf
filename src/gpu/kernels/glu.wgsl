// out[i] = a(gate) · up. Gate and up lie apart (two buffers) or interleaved in the first (gate, up, gate, up, …).
// use: index

override threads: u32 = 256;
// 0: gelu_tanh(gate) · up   1: silu(gate) · up   2: g · sigmoid(alpha · g) · (u + 1), g and u clamped by `limit`
override activation: u32 = 0;
override interleaved: bool = false;
const kEach: u32 = 4;  // elements a thread, `threads` apart

struct Params {
  count: u32,
  limit: f32,
  alpha: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read> up: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

// The cut keeps exp from overflowing, which WGSL leaves undefined; sigmoid(-80) is 2e-35.
fn sigmoid(v: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-v, 80.0)));
}

fn activate(g: f32, u: f32) -> f32 {
  if (activation == 0u) {
    // 0.5 · (1 + tanh(t)) is sigmoid(2t), without the cancellation.
    return g * sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u;
  }
  if (activation == 1u) {
    return g * sigmoid(g) * u;
  }
  let cut = min(g, params.limit);
  return cut * sigmoid(params.alpha * cut) * (clamp(u, -params.limit, params.limit) + 1.0);
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(id, count) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      if (interleaved) {
        out[i] = activate(gate[2u * i], gate[2u * i + 1u]);
      } else {
        out[i] = activate(gate[i], up[i]);
      }
    }
  }
}
