// out [entries, rows] = x · W[expert]ᵀ (+ its bias) for tokens grouped by expert (expert_map.wgsl), from activations of 8
// bits. As matmul_int8.wgsl, but for whose rows and tokens a tile takes. Grid: x row tiles, y tiles of the map.
requires packed_4x8_integer_dot_product;
// use: matmul_share = r4t4 | r4t8 | r8t4 | r8t8
// use: mxfp4
// use: matmul_int8 = q4_k | q6_k | q8_0 | mxfp4
// use: matmul_int8_tile
// use: matmul_tokens = chosen
// use: matmul_out = chosen

struct Params {
  tokens: u32,  // of x
  pieces: u32,  // of 32 columns, in a row of W
  stride: u32,  // vec4<u32> from row to row of W
  steps: u32,   // of 64 columns
  rows: u32,    // of an expert
  share: u32,   // entries that read one row of x
  first_expert: u32,  // of this part of W
  experts: u32,       // in it
  bias: u32,    // 1: add bias
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;         // [steps · 4][tokens]: 16 columns
@group(0) @binding(2) var<storage, read> x_scales: array<vec2<f32>>;  // [steps · 2][tokens]: (scale, scale · Σ q)
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;  // [experts of all parts, rows]
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
  var next: Fetched;
  if (prefetch) {
    next = fetch(place, 0u);
  }
  for (var step = 0u; step < params.steps; step++) {
    let buffer = step % buffers;
    if (!prefetch) {
      next = fetch(place, step);
    }
    if (buffers == 1u) {
      workgroupBarrier();  // until the step before has been read
    }
    store(place, step, buffer, next);
    workgroupBarrier();
    if (prefetch && step + 1u < params.steps) {
      next = fetch(place, step + 1u);
    }
    for (var piece = 0u; piece < 2u; piece++) {
      accumulate(&sums, buffer * 2u + piece, place.row, place.token);
    }
  }
  finish(place, &sums);
}
