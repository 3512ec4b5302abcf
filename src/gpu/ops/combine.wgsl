// out = Σ weight · expert's output, over a token's experts in the order of its route.
// use: index

override threads: u32 = 256;

struct Params {
  tokens: u32,
  width: u32,
  k: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> experts: array<f32>;    // [tokens, k, width]
@group(0) @binding(2) var<storage, read> route: array<f32>;      // [tokens, 2k]
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [tokens, width]

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  if (i >= params.tokens * params.width) {
    return;
  }
  let token = i / params.width;
  let column = i % params.width;
  var sum = 0.0;
  for (var e = 0u; e < params.k; e++) {
    let weight = route[(token * 2u + 1u) * params.k + e];
    sum = fma(weight, experts[(token * params.k + e) * params.width + column], sum);
  }
  out[i] = sum;
}
