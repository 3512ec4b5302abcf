// Matrix products of many tokens with x in f32: dense, and of experts.

// snippet: matmul_w = f32
// Four weights as the tile holds them.
alias Held = vec4<f32>;

// snippet: matmul_w = f16
enable f16;

// Four weights as the tile holds them: half the memory, and half the traffic.
alias Held = vec4<f16>;

// snippet: matmul_f32_tile
// The tiles of one piece, 32 columns, in workgroup memory, and the way into them.
override row_lanes: u32 = 16;    // threads along the rows, a multiple of 8
override token_lanes: u32 = 16;  // threads along the tokens
override threads: u32 = row_lanes * token_lanes;
override tile_rows: u32 = row_lanes * kThreadRows;
override tile_tokens: u32 = token_lanes * kThreadTokens;

// [eight groups k of 4 columns][row or token]. Number n lies at n ^ k, so that threads that store several groups of one
// token use different banks.
var<workgroup> w_tile: array<Held, tile_rows * 8u>;
var<workgroup> x_tile: array<vec4<f32>, tile_tokens * 8u>;

struct Place {
  lane: u32,
  first_row: u32,    // of the tile, in W
  first_token: u32,  // of the tile
  row: u32,          // of this thread, in the tile: its first
  token: u32,
  split: u32,
}

// Four columns of four rows; of one token.
struct Rows {
  v0: vec4<f32>,
  v1: vec4<f32>,
  v2: vec4<f32>,
  v3: vec4<f32>,
}
struct Token {
  v: vec4<f32>,
}

// Rows and tokens past the end are read from the last one: their sums are not stored.
fn store(place: Place, piece: u32) {
  for (var i = place.lane; i < tile_rows; i += threads) {
    let v = raw_values(load_raw(weight_row(place, i) * params.stride, piece, params.pieces), piece);
    w_tile[i] = Held(v.a);
    w_tile[tile_rows + (i ^ 1u)] = Held(v.b);
    w_tile[2u * tile_rows + (i ^ 2u)] = Held(v.c);
    w_tile[3u * tile_rows + (i ^ 3u)] = Held(v.d);
    w_tile[4u * tile_rows + (i ^ 4u)] = Held(v.e);
    w_tile[5u * tile_rows + (i ^ 5u)] = Held(v.f);
    w_tile[6u * tile_rows + (i ^ 6u)] = Held(v.g);
    w_tile[7u * tile_rows + (i ^ 7u)] = Held(v.h);
  }
  for (var i = place.lane; i < tile_tokens * 8u; i += threads) {
    let token = i / 8u;
    let k = i % 8u;
    x_tile[k * tile_tokens + (token ^ k)] = x_quad(x_token(place, token), piece * 32u + k * 4u);
  }
}

fn load_rows(k: u32, row: u32) -> Rows {
  let at = k * tile_rows + (row ^ k);
  return Rows(vec4<f32>(w_tile[at]), vec4<f32>(w_tile[at + row_lanes]), vec4<f32>(w_tile[at + 2u * row_lanes]),
              vec4<f32>(w_tile[at + 3u * row_lanes]));
}
fn load_token(k: u32, token: u32) -> Token {
  return Token(x_tile[k * tile_tokens + (token ^ k)]);
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  var v = fma(vec4<f32>(r.v0.x, r.v1.x, r.v2.x, r.v3.x), vec4<f32>(x.v.x), sums);
  v = fma(vec4<f32>(r.v0.y, r.v1.y, r.v2.y, r.v3.y), vec4<f32>(x.v.y), v);
  v = fma(vec4<f32>(r.v0.z, r.v1.z, r.v2.z, r.v3.z), vec4<f32>(x.v.z), v);
  return fma(vec4<f32>(r.v0.w, r.v1.w, r.v2.w, r.v3.w), vec4<f32>(x.v.w), v);
}

// kernel: matmul_f32
// out [tokens, rows] = x [tokens, cols] · Wᵀ (+ bias) for many tokens, from weights of any type with x in f32: where
// integer dot products are missing, or 8 bits of x would not do. The tile may hold weights as f16.
//
// A workgroup owns a tile of rows × tokens and goes along the columns in pieces of 32, which it decodes into workgroup
// memory once. A thread computes kThreadRows × kThreadTokens sums in registers.
// Grid: x row tiles, y token tiles, z parts of the columns (whose sums matmul.wgsl adds).
// use: bytes
// use: mxfp4
// use: weights = *
// use: thread_tile = r4t4 | r8t4 | r8t8
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
  store_sums(place, &sums);
}

// kernel: expert_matmul_f32
// out [entries, rows] = x · W[expert]ᵀ (+ its bias) for tokens grouped by expert (route.wgsl), with x in f32. As
// matmul_f32.wgsl, but for whose rows and tokens a tile takes. Grid: x row tiles, y tiles of the map.
// use: bytes
// use: mxfp4
// use: weights = *
// use: thread_tile = r4t4 | r8t4 | r8t8
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
  entries_per_row: u32,  // entries that read one row of x
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
  store_sums(place, &sums);
}
