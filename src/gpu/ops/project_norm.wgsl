// y = W · norm(r) for one token, where r = x + s · branch, or x + s · norm(branch): the end of one block of a layer, the residual
// addition and the beginning of the next block in one dispatch. Every workgroup makes the norm anew (a few KiB from the
// cache); the first one also stores r for the next block. See lib/project.wgsl.
// use: index
// use: bytes
// use: mxfp4
// use: weights = *
// use: x = float | int8 | int8_wide
// use: int_dots = *
// use: team_sum = plain | subgroup
// use: sort_key
// use: project_out = plain | int8 | int8_wide | best
// use: soft_cap = tanh
// use: project
// use: dense_rows
// use: project_rows = dense
// use: group_sum = plain | subgroup
// use: residual_norm

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
  eps: f32,
  offset: f32,
  branch: u32,  // 0: r = x; 1: x + branch; 2: x + norm(branch)
  store: u32,   // 1: this dispatch stores r
  first_pair: u32,  // see lib/project_out.wgsl
  branch_scale: f32,
  scale: f32,       // of W · norm(r), before the bias
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // cols is a multiple of 4
@group(0) @binding(2) var<storage, read> branch: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norms: array<vec4<f32>>;  // the weights of the norm of r, then of branch
@group(0) @binding(4) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(6) var<storage, read> bias: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<u32>;
@group(0) @binding(8) var<storage, read_write> r: array<vec4<f32>>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup_index(id, count);
  let first = index * groups * rows * bands;
  prefetch(first, thread);

  residual_norm(0u, thread, params.store == 1u && index == 0u);
  prepare_x(thread);
  result_scale = inverseSqrt(group_sum_get(thread, 1u) / f32(params.cols) + params.eps) * params.scale;
  project(first, thread);
}
