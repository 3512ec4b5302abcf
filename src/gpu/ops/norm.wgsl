// RMSNorm: out = x / sqrt(mean(x²) + eps) · (offset + weight), over groups of `width` elements (a row, or a head).
// One workgroup a group.
// use: index
// use: reduce = plain | subgroup

override threads: u32 = 256;

struct Params {
  groups: u32,
  width: u32,
  eps: f32,
  offset: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let group = workgroup_index(id, count);
  if (group >= params.groups) {
    return;
  }
  let first = group * params.width;
  var squares = 0.0;
  for (var i = lane; i < params.width; i += threads) {
    let v = x[first + i];
    squares += v * v;
  }
  let mean = workgroup_sum(squares, lane) / f32(params.width);
  let factor = 1.0 / sqrt(mean + params.eps);
  for (var i = lane; i < params.width; i += threads) {
    out[first + i] = x[first + i] * factor * (params.offset + weight[i]);
  }
}
