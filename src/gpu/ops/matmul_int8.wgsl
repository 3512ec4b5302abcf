// Matrix products of many tokens with x in int8: dense, and of experts.

// kernel: matmul_int8
// out [tokens, rows] = x [tokens, cols] · Wᵀ (+ bias) for many tokens, from quantised weights and activations of 8 bits
// (activations.wgsl) by packed integer dot products. Sums within a piece of 32 columns are exact.
//
// A workgroup owns a tile of rows × tokens and goes along the columns in steps of 64. The bytes of the next step are on
// their way into registers while a step is computed; they are unpacked to 8 bits once, into workgroup memory, and used
// by every thread from there. A thread computes kThreadRows × kThreadTokens sums in registers.
// Grid: x row tiles, y token tiles, z parts of the columns (whose sums matmul.wgsl adds).
requires packed_4x8_integer_dot_product;
// use: thread_tile = r4t4 | r4t8 | r8t4 | r8t8
// use: mxfp4
// use: matmul_int8 = *
// use: matmul_int8_tile
// use: matmul_tokens = all
// use: matmul_out = plain

struct Params {
  tokens: u32,
  rows: u32,         // of this part of W
  pieces: u32,       // of 32 columns, in a row of W
  stride: u32,       // vec4<u32> from row to row of W
  steps: u32,        // of 64 columns
  split_steps: u32,  // of one part of the columns
  out_first: u32,    // element of out that takes row 0 of token 0
  out_stride: u32,   // elements from token to token of out
  out_split: u32,    // elements from part to part of out
  bias: u32,         // 1: add bias
  bias_first: u32,   // element of bias for row 0
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;         // [steps · 4][tokens]: 16 columns
@group(0) @binding(2) var<storage, read> x_scales: array<vec2<f32>>;  // [steps · 2][tokens]: (scale, scale · Σ q)
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let place = Place(lane, id.x * tile_rows, id.y * tile_tokens, lane % row_lanes, lane / row_lanes, id.z);
  let first = id.z * params.split_steps;
  let end = min(first + params.split_steps, params.steps);
  var sums: Sums;
  var next: Fetched;
  if (prefetch) {
    next = fetch(place, first);
  }
  for (var step = first; step < end; step++) {
    let buffer = (step - first) % buffers;
    if (!prefetch) {
      next = fetch(place, step);
    }
    if (buffers == 1u) {
      workgroupBarrier();  // until the step before has been read
    }
    store(place, step, buffer, next);
    workgroupBarrier();
    if (prefetch && step + 1u < end) {
      next = fetch(place, step + 1u);
    }
    for (var piece = 0u; piece < 2u; piece++) {
      accumulate(&sums, buffer * 2u + piece, place.row, place.token);
    }
  }
  store_sums(place, &sums);
}

// kernel: expert_matmul_int8
// out [entries, rows] = x · W[expert]ᵀ (+ its bias) for tokens grouped by expert (route.wgsl), from activations of 8
// bits. As matmul_int8.wgsl, but for whose rows and tokens a tile takes. Grid: x row tiles, y tiles of the map.
requires packed_4x8_integer_dot_product;
// use: thread_tile = r4t4 | r4t8 | r8t4 | r8t8
// use: mxfp4
// use: matmul_int8 = *
// use: matmul_int8_tile
// use: matmul_tokens = chosen
// use: matmul_out = chosen

struct Params {
  tokens: u32,  // of x
  pieces: u32,  // of 32 columns, in a row of W
  stride: u32,  // vec4<u32> from row to row of W
  steps: u32,   // of 64 columns
  rows: u32,    // of an expert
  entries_per_row: u32,  // entries that read one row of x
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
  store_sums(place, &sums);
}
