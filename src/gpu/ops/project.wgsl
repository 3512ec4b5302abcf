// Decode projections whose x is there already: as floats, as int8, or in the splits of attention.

// kernel: project
// y = W · x (+ bias) for one token: a decode projection that takes x as it is. See lib/project.wgsl.
// use: index
// use: bytes
// use: mxfp4
// use: weights = *
// use: x = float | int8 | int8_wide
// use: int_dots = *
// use: team_sum = plain | subgroup
// use: project_out = plain
// use: soft_cap = tanh
// use: project
// use: dense_rows
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
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // cols is a multiple of 4
@group(0) @binding(2) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

const kTogether = 8u;
override turns: u32 = 1;  // quads per thread: ⌈8 · pieces / threads⌉
var<private> kept: array<vec4<f32>, kTogether>;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let first = workgroup_index(id, count) * groups * rows * bands;
  prefetch(first, thread);
  // Eight quads are on their way together: one after the other, their waits would add up.
  for (var base = 0u; base < turns; base += kTogether) {
    for (var t = 0u; t < min(kTogether, turns); t++) {
      let quad = thread + (base + t) * lanes * groups;
      kept[t] = select(vec4<f32>(0.0), x[min(quad, params.cols / 4u - 1u)], quad * 4u < params.cols);
    }
    for (var t = 0u; t < min(kTogether, turns); t++) {
      let quad = thread + (base + t) * lanes * groups;
      if (quad < max_pieces * 8u) {
        x_put(quad, kept[t]);
      }
    }
  }
  prepare_x(thread);
  project(first, thread);
}

// kernel: project_stored
// y = W · x (+ bias) for one token, where the projection before left x as int8: nothing is made ready and nobody waits.
// See lib/project.wgsl and lib/project_out.wgsl.
// use: index
// use: bytes
// use: weights = q4_k | q6_k
// use: x = stored
// use: int_dots = q4_k | q6_k
// use: team_sum = plain | subgroup
// use: project_out = plain
// use: soft_cap = tanh
// use: project
// use: dense_rows
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

// kernel: project_merge
// y = W · attention (+ bias) for one token, where the attention still lies in splits: every workgroup puts them together
// on the way in. See lib/project.wgsl and attention_decode.wgsl.
// use: index
// use: bytes
// use: state
// use: splits
// use: merge_partials
// use: mxfp4
// use: weights = *
// use: x = float | int8 | int8_wide
// use: int_dots = *
// use: team_sum = plain | subgroup
// use: project_out = plain
// use: soft_cap = tanh
// use: project
// use: dense_rows
// use: project_rows = dense

struct Params {
  cols: u32,  // heads · head_dim
  pieces: u32,
  stride: u32,
  rows: u32,
  first_row: u32,
  bias: u32,
  softcap: f32,
  second_row: u32,     // rows from here on lie elsewhere (lib/project.wgsl)
  second_at: u32,
  second_stride: u32,
  heads: u32,
  head_dim: u32,
  splits: u32,
  window: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<u32>;

fn token_position() -> u32 {
  return state.position;
}

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let first = workgroup_index(id, count) * groups * rows * bands;
  prefetch(first, thread);
  let merge = Merge(params.heads, params.head_dim, params.splits, params.window, 0u);
  for (var quad = thread; quad < max_pieces * 8u; quad += lanes * groups) {
    var v = vec4<f32>(0.0);
    if (quad * 4u < params.cols) {
      v = merged(merge, quad);
    }
    x_put(quad, v);
  }
  prepare_x(thread);
  project(first, thread);
}
