// out [entries, rows] = x · W[expert]ᵀ (+ its bias) for tokens grouped by expert (expert_map.wgsl), with x in f32. As
// matmul_f32.wgsl, but for whose rows and tokens a tile takes. Grid: x row tiles, y tiles of the map.
// use: bytes
// use: mxfp4
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k | mxfp4
// use: matmul_share = r4t4 | r8t4 | r8t8
// use: matmul_w = f32
// use: x_quad
// use: matmul_f32_tile
// use: matmul_tokens = chosen
// use: matmul_out = chosen

struct Params {
  cols: u32,
  pieces: u32,  // of 32 columns
  stride: u32,  // vec4<u32> from row to row of W
  rows: u32,    // of an expert
  share: u32,   // entries that read one row of x
  first_expert: u32,  // of this part of W
  experts: u32,       // in it
  bias: u32,    // 1: add bias
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read> bias: array<f32>;      // [experts of all parts, rows]
@group(0) @binding(5) var<storage, read> entries: array<u32>;
@group(0) @binding(6) var<storage, read> tiles: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  if (!take_tile(id.y, lane)) {
    return;
  }
  let place = Place(lane, id.x * tile_rows, 0u, lane % row_lanes, lane / row_lanes, 0u);
  var sums: Sums;
  for (var piece = 0u; piece < params.pieces; piece++) {
    workgroupBarrier();  // until the piece before has been read
    store(place, piece);
    workgroupBarrier();
    for (var k = 0u; k < 8u; k++) {
      accumulate(&sums, k, place.row, place.token);
    }
  }
  finish(place, &sums);
}
