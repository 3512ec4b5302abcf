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
// use: project_rows = dense
// use: group_sum = plain | subgroup

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

const kMaxTurns = 8u;
override turns: u32 = 1;  // quads per thread: ⌈8 · pieces / threads⌉, at most kMaxTurns

// What a thread keeps of its quads between the passes.
var<private> kept_quads: array<vec4<f32>, kMaxTurns>;
var<private> kept_branch: array<vec4<f32>, kMaxTurns>;
var<private> kept_norms: array<vec4<f32>, kMaxTurns>;
var<private> kept_branch_norms: array<vec4<f32>, kMaxTurns>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup_index(id, count);
  let first = index * groups * rows * bands;
  let quads = params.cols / 4u;
  prefetch(first, thread);

  // Everything is read before anything waits.
  for (var t = 0u; t < turns; t++) {
    let q = thread + t * lanes * groups;
    var v = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
    var n = vec4<f32>(0.0);
    var bn = vec4<f32>(0.0);
    if (q < quads) {
      v = x[q];
      n = norms[q];
      if (params.branch != 0u) {
        b = branch[q];
      }
      if (params.branch == 2u) {
        bn = norms[quads + q];
      }
    }
    kept_quads[t] = v;
    kept_norms[t] = n;
    kept_branch[t] = b;
    kept_branch_norms[t] = bn;
  }
  if (params.branch == 2u) {
    var own = 0.0;
    for (var t = 0u; t < turns; t++) {
      own += dot(kept_branch[t], kept_branch[t]);
    }
    group_sum_put(own, thread, 0u);
    workgroupBarrier();
    let factor = inverseSqrt(group_sum_get(thread, 0u) / f32(params.cols) + params.eps);
    for (var t = 0u; t < turns; t++) {
      kept_branch[t] *= factor * (vec4<f32>(params.offset) + kept_branch_norms[t]);
    }
  }
  var own = 0.0;
  for (var t = 0u; t < turns; t++) {
    kept_quads[t] += params.branch_scale * kept_branch[t];
    own += dot(kept_quads[t], kept_quads[t]);
    let q = thread + t * lanes * groups;
    if (params.store == 1u && index == 0u && q < quads) {
      r[q] = kept_quads[t];
    }
  }
  // The norm's factor is the same for all columns: it waits for its sum while the product is made without it.
  group_sum_put(own, thread, 1u);
  for (var t = 0u; t < turns; t++) {
    let q = thread + t * lanes * groups;
    if (q < max_pieces * 8u) {
      // Past the end of x the quads are zero, so is their norm's product.
      x_put(q, kept_quads[t] * (vec4<f32>(params.offset) + kept_norms[t]));
    }
  }
  prepare_x(thread);
  result_scale = inverseSqrt(group_sum_get(thread, 1u) / f32(params.cols) + params.eps) * params.scale;
  project(first, thread);
}
