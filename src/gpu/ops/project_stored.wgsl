// y = W · x (+ bias) for one token, where the projection before left x as int8: nothing is made ready and nobody waits.
// See lib/project.wgsl and lib/project_out.int8.wgsl.
// use: index
// use: bytes
// use: weights = q4_k | q6_k
// use: x = stored
// use: int_dots = q4_k | q6_k
// use: team_sum = plain | subgroup
// use: project_out = plain
// use: project
// use: project_rows = dense

struct Params {
  cols: u32,
  pieces: u32,
  stride: u32,
  rows: u32,
  first_row: u32,
  bias: u32,
  softcap: f32,
  second_row: u32,     // rows from here on lie elsewhere (lib/project.wgsl)
  second_at: u32,
  second_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let first = workgroup_index(id, count) * groups * rows * bands;
  prefetch(first, thread);
  project(first, thread);
}
