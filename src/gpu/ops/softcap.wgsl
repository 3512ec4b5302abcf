// out[i] = cap · tanh(x[i] / cap), i < count.
// use: index

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
    // Beyond 20 the hyperbolic tangent is 1 in f32; some devices' own overflows there.
    out[i] = params.cap * tanh(clamp(x[i] / params.cap, -20.0, 20.0));
  }
}
