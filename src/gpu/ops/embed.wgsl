// out[t] = row tokens[t] of the embedding matrix · scale. The matrix may be split by rows: this dispatch writes the
// tokens whose row lies in its part. One thread per quad of four weights: neighbours write neighbouring places.
// use: index
// use: bytes
// use: mxfp4
// use: weights = *

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
@group(0) @binding(2) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

fn quad_of(piece: Piece, i: u32) -> vec4<f32> {
  switch i {
    case 0u: { return piece.a; }
    case 1u: { return piece.b; }
    case 2u: { return piece.c; }
    case 3u: { return piece.d; }
    case 4u: { return piece.e; }
    case 5u: { return piece.f; }
    case 6u: { return piece.g; }
    default: { return piece.h; }
  }
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let item = workgroup_index(id, count) * threads + lane;
  let quads = params.pieces * 8u;
  let token = item / quads;
  let piece = item % quads / 8u;
  if (token >= params.tokens) {
    return;
  }
  let row = tokens[params.first_token + token] - params.first_row;  // wraps below first_row
  if (row >= params.rows) {
    return;
  }
  let v = quad_of(raw_values(load_raw(row * params.stride, piece, params.pieces), piece), item % 8u) * params.scale;
  let at = item % quads * 4u;
  for (var k = 0u; k < 4u; k++) {
    if (at + k < params.width) {
      out[token * params.width + at + k] = v[k];
    }
  }
}
