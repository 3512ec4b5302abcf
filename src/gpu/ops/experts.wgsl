// The experts of decoded tokens, a column each (z of the grid): one, or those of many sequences.

// kernel: experts_up
// The chosen experts' gate and up of norm(r) for one token, with the choice before and the activation after it: every
// workgroup ranks the router's scores itself (a few hundred bytes), so that nobody waits for a dispatch that would do
// only that. Rows of an expert are gate and up in turn. See lib/project.wgsl and route.wgsl.
// use: index
// use: bytes
// use: mxfp4
// use: weights = *
// use: x = float | int16
// use: int16 = none | mxfp4
// use: team_sum = plain | subgroup
// use: up_out = plain | int16
// use: project
// use: activate
// use: project_rows = up
// use: group_sum = plain | subgroup
// use: top_experts

struct Params {
  cols: u32,
  pieces: u32,
  stride: u32,
  rows: u32,             // of an expert
  experts: u32,          // in all
  k: u32,
  first_expert: u32,     // of this part of W
  part_experts: u32,     // in it
  rank_workgroups: u32,  // that one chosen expert takes
  bias: u32,
  activation: u32,       // see elementwise.wgsl
  limit: f32,
  alpha: f32,
  eps: f32,
  offset: f32,
  over_all: u32,         // see route.wgsl
  between: u32,          // words of a column of y
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> r: array<vec4<f32>>;  // cols is a multiple of 4
@group(0) @binding(2) var<storage, read> norms: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> scores: array<f32>;  // [experts]
@group(0) @binding(4) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(6) var<storage, read> bias: array<f32>;      // [experts, rows]
@group(0) @binding(7) var<storage, read_write> y: array<u32>;
@group(0) @binding(8) var<storage, read_write> route: array<f32>;  // [2k]

const kMaxTurns = 8u;
override turns: u32 = 1;  // quads per thread: ⌈8 · pieces / threads⌉, at most kMaxTurns
var<private> kept_quads: array<vec4<f32>, kMaxTurns>;
var<private> kept_norms: array<vec4<f32>, kMaxTurns>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup_index(id, count);
  column = id.z;
  if (index >= params.k * params.rank_workgroups) {
    return;
  }
  let rank = index / params.rank_workgroups;
  let first = index % params.rank_workgroups * groups * rows * bands;
  let quads = params.cols / 4u;
  prepare_choice(thread);
  for (var e = thread; e < params.experts; e += lanes * groups) {
    expert_scores[e] = scores[column * params.experts + e];
  }
  for (var t = 0u; t < turns; t++) {
    let q = thread + t * lanes * groups;
    let there = min(q, quads - 1u);
    kept_quads[t] = select(vec4<f32>(0.0), r[column * quads + there], q < quads);
    kept_norms[t] = norms[there];
  }
  workgroupBarrier();
  choose_experts(thread, lanes * groups, params.experts, params.k);
  let expert = workgroupUniformLoad(&chosen_experts[rank]);
  if (index == 0u && thread < params.k) {
    route[column * 2u * params.k + thread] = f32(chosen_experts[thread]);
    route[(column * 2u + 1u) * params.k + thread] = chosen_weight(thread, params.k, params.over_all * params.experts);
  }
  if (expert < params.first_expert || expert >= params.first_expert + params.part_experts) {
    return;
  }
  take_expert(expert, rank, first, thread);
  prefetch(first, thread);

  var own = 0.0;
  for (var t = 0u; t < turns; t++) {
    own += dot(kept_quads[t], kept_quads[t]);
  }
  // The norm's factor is the same for all columns: it waits for its sum while the product is made without it.
  group_sum_put(own, thread, 0u);
  for (var t = 0u; t < turns; t++) {
    let q = thread + t * lanes * groups;
    if (q < max_pieces * 8u) {
      x_put(q, kept_quads[t] * (vec4<f32>(params.offset) + kept_norms[t]));
    }
  }
  prepare_x(thread);
  result_scale = inverseSqrt(group_sum_get(thread, 0u) / f32(params.cols) + params.eps);
  project(first, thread);
}

// kernel: experts_down
// y = Σ weight · (W[expert] · x of that expert + bias) over the chosen experts, for one token: the rows of all of them are
// taken as one long row, so the sum needs no dispatch of its own. x is what experts.wgsl left. See lib/project.wgsl.
// use: index
// use: bytes
// use: mxfp4
// use: weights = *
// use: x = stored16 | stored_float
// use: int16 = none | mxfp4
// use: team_sum = plain | subgroup
// use: project
// use: project_rows = down

struct Params {
  cols: u32,          // of an expert
  pieces: u32,        // k · own_pieces
  stride: u32,
  rows: u32,
  k: u32,
  first_expert: u32,  // of this part of W
  part_experts: u32,  // in it
  bias: u32,
  add: u32,           // 1: to what another part left in y
  between: u32,       // vec4<u32> of a column of x
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> route: array<f32>;  // [2k]
@group(0) @binding(3) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(5) var<storage, read> bias: array<f32>;      // [experts, rows]
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let first = workgroup_index(id, count) * groups * rows * bands;
  column = id.z;
  take_ranks(thread);
  workgroupBarrier();
  prefetch(first, thread);
  bias_ahead = row_biases(0u, first, thread);
  project(first, thread);
}
