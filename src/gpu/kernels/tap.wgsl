// Keeps a copy of a value of the token being decoded, behind those of the tokens before it in the same submit.
// use: index
// use: state

override threads: u32 = 256;

struct Params {
  count: u32,   // f32 of the value
  offset: u32,  // of the value in a token's row
  stride: u32,  // f32 of a token's row
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> taps: array<f32>;  // [tokens, stride]

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  if (i < params.count) {
    taps[state.produced * params.stride + params.offset + i] = x[i];
  }
}
