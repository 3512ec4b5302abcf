// out [tokens, rows] = Σ over the parts of `parts` [splits, tokens, rows] (+ bias): the end of a matrix product whose
// columns were shared among workgroups.
// use: index

override threads: u32 = 256;

struct Params {
  tokens: u32,
  rows: u32,
  splits: u32,
  out_first: u32,   // element of out that takes row 0 of token 0
  out_stride: u32,  // elements from token to token of out
  bias: u32,        // 1: add bias
  bias_first: u32,  // element of bias for row 0
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  let size = params.tokens * params.rows;
  if (i >= size) {
    return;
  }
  let row = i % params.rows;
  var sum = 0.0;
  if (params.bias == 1u) {
    sum = bias[params.bias_first + row];
  }
  for (var s = 0u; s < params.splits; s++) {
    sum += parts[s * size + i];
  }
  out[params.out_first + i / params.rows * params.out_stride + row] = sum;
}
