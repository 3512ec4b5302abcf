// out[t] = row tokens[t] of the embedding matrix · scale. The matrix may be split by rows: this dispatch writes the
// tokens whose row lies in its part. One thread a piece of 32 weights.
// use: index
// use: bytes
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k

override threads: u32 = 64;

struct Params {
  tokens: u32,
  width: u32,      // of a row of out
  pieces: u32,     // of a row of the matrix
  stride: u32,     // vec4<u32> from row to row of the matrix
  first_row: u32,  // of this part
  rows: u32,       // in this part
  scale: f32,
  first_token: u32,  // where in `tokens` the first one stands
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> w: array<u32>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

fn store(at: u32, end: u32, v: vec4<f32>) {
  for (var k = 0u; k < 4u; k++) {
    if (at + k < end) {
      out[at + k] = v[k] * params.scale;
    }
  }
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let item = workgroup_index(id, count) * threads + lane;
  let token = item / params.pieces;
  let piece = item % params.pieces;
  if (token >= params.tokens) {
    return;
  }
  let row = tokens[params.first_token + token] - params.first_row;  // wraps below first_row
  if (row >= params.rows) {
    return;
  }
  let v = raw_values(load_raw(row * params.stride, piece, params.pieces), piece);
  let at = token * params.width + piece * 32u;
  let end = (token + 1u) * params.width;
  store(at, end, v.a);
  store(at + 4u, end, v.b);
  store(at + 8u, end, v.c);
  store(at + 12u, end, v.d);
  store(at + 16u, end, v.e);
  store(at + 20u, end, v.f);
  store(at + 24u, end, v.g);
  store(at + 28u, end, v.h);
}
