// out[i] = a(gate) · up. Gate and up lie apart (two buffers) or interleaved in the first (gate, up, gate, up, …).
// use: index
// use: activate

override threads: u32 = 256;
override activation: u32 = 0;  // see lib/activate.wgsl
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

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(id, count) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      if (interleaved) {
        out[i] = activate(activation, gate[2u * i], gate[2u * i + 1u], params.limit, params.alpha);
      } else {
        out[i] = activate(activation, gate[i], up[i], params.limit, params.alpha);
      }
    }
  }
}
