// y = W · x (+ bias) for one token: a decode projection that takes x as it is. See lib/project.wgsl.
// use: index
// use: bytes
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k
// use: x = float | int8 | int8_wide
// use: int_dots = none | q8_0 | q4_k | q6_k
// use: project

struct Params {
  cols: u32,
  pieces: u32,
  stride: u32,
  rows: u32,
  first_row: u32,
  bias: u32,
  softcap: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // cols is a multiple of 4
@group(0) @binding(2) var<storage, read> w: array<u32>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let first = workgroup_index(id, count) * groups * rows;
  prefetch(first, thread);
  for (var quad = thread; quad < most_pieces * 8u; quad += lanes * groups) {
    var v = vec4<f32>(0.0);
    if (quad * 4u < params.cols) {
      v = x[quad];
    }
    x_put(quad, v);
  }
  finish_x(thread);
  project(first, thread);
}
