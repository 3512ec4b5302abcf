// out [tokens, rows] = x [tokens, cols] · Wᵀ (+ bias) for many tokens, from weights of any type with x in f32: where
// integer dot products are missing, or 8 bits of x would not do. The tile may hold weights as f16.
//
// A workgroup owns a tile of rows × tokens and goes along the columns in pieces of 32, which it decodes into workgroup
// memory once. A thread computes kThreadRows × kThreadTokens sums in registers.
// Grid: x row tiles, y token tiles, z parts of the columns (whose sums matmul_sum.wgsl adds).
// use: bytes
// use: mxfp4
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k | mxfp4
// use: matmul_share = r4t4 | r8t4 | r8t8
// use: matmul_w = f32 | f16
// use: x_quad
// use: matmul_f32_tile
// use: matmul_tokens = all
// use: matmul_out = plain

struct Params {
  tokens: u32,
  rows: u32,          // of this part of W
  cols: u32,
  pieces: u32,        // of 32 columns
  stride: u32,        // vec4<u32> from row to row of W
  split_pieces: u32,  // of one part of the columns
  out_first: u32,     // element of out that takes row 0 of token 0
  out_stride: u32,    // elements from token to token of out
  out_split: u32,     // elements from part to part of out
  bias: u32,          // 1: add bias
  bias_first: u32,    // element of bias for row 0
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let place = Place(lane, id.x * tile_rows, id.y * tile_tokens, lane % row_lanes, lane / row_lanes, id.z);
  let first = id.z * params.split_pieces;
  let end = min(first + params.split_pieces, params.pieces);
  var sums: Sums;
  for (var piece = first; piece < end; piece++) {
    workgroupBarrier();  // until the piece before has been read
    store(place, piece);
    workgroupBarrier();
    for (var k = 0u; k < 8u; k++) {
      accumulate(&sums, k, place.row, place.token);
    }
  }
  finish(place, &sums);
}
