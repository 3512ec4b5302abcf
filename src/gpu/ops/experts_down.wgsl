// y = Σ weight · (W[expert] · x of that expert + bias) over the chosen experts, for one token: the rows of all of them are
// taken as one long row, so the sum needs no dispatch of its own. x is what experts_up.wgsl left. See lib/project.wgsl.
// use: index
// use: bytes
// use: mxfp4
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k | mxfp4
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
  take_slots(thread);
  workgroupBarrier();
  prefetch(first, thread);
  bias_ahead = row_biases(0u, first, thread);
  project(first, thread);
}
