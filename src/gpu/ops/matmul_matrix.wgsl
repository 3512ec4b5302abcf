// Matrix products of many tokens by subgroup matrices.

// snippet: subgroup_tile = t64
// A subgroup's tile: 64 tokens by 32 rows, in matrices of 16 × 16. Remainders tell the compiler that offsets
// lie within the tiles: then loads need no checks, which would halve their pace.
const kTokenGroups = 2u;  // subgroups along the tokens
const kRowGroups = 4u;
const kSubgroupTokens = 64u;

struct Sums {
  s00: Result,
  s01: Result,
  s10: Result,
  s11: Result,
  s20: Result,
  s21: Result,
  s30: Result,
  s31: Result,
}

// Adds the products of a step, 64 columns.
fn accumulate(sums: ptr<function, Sums>, lane: u32) {
  for (var k = 0u; k < 8u; k += 2u) {
    let t = lane / kLanes / kRowGroups % kTokenGroups * kSubgroupTokens * kLine + k % 8u;
    let r = lane / kLanes % kRowGroups * kSubgroupRows * kLine + k % 8u;
    let r0 = subgroupMatrixLoad<Right, col_major>(&w_tile, r, kLine);
    let r1 = subgroupMatrixLoad<Right, col_major>(&w_tile, r + 16u * kLine, kLine);
    let t0 = subgroupMatrixLoad<Left, row_major>(&x_tile, t, kLine);
    (*sums).s00 = subgroupMatrixMultiplyAccumulate(t0, r0, (*sums).s00);
    (*sums).s01 = subgroupMatrixMultiplyAccumulate(t0, r1, (*sums).s01);
    let t1 = subgroupMatrixLoad<Left, row_major>(&x_tile, t + 16u * kLine, kLine);
    (*sums).s10 = subgroupMatrixMultiplyAccumulate(t1, r0, (*sums).s10);
    (*sums).s11 = subgroupMatrixMultiplyAccumulate(t1, r1, (*sums).s11);
    let t2 = subgroupMatrixLoad<Left, row_major>(&x_tile, t + 32u * kLine, kLine);
    (*sums).s20 = subgroupMatrixMultiplyAccumulate(t2, r0, (*sums).s20);
    (*sums).s21 = subgroupMatrixMultiplyAccumulate(t2, r1, (*sums).s21);
    let t3 = subgroupMatrixLoad<Left, row_major>(&x_tile, t + 48u * kLine, kLine);
    (*sums).s30 = subgroupMatrixMultiplyAccumulate(t3, r0, (*sums).s30);
    (*sums).s31 = subgroupMatrixMultiplyAccumulate(t3, r1, (*sums).s31);
  }
}

fn store_sums(place: Place, sums: ptr<function, Sums>) {
  emit(place, 0u, (*sums).s00, (*sums).s01);
  emit(place, 16u, (*sums).s10, (*sums).s11);
  emit(place, 32u, (*sums).s20, (*sums).s21);
  emit(place, 48u, (*sums).s30, (*sums).s31);
}

// snippet: subgroup_tile = t32
// A subgroup's tile: 32 tokens by 32 rows, in matrices of 16 × 16. Remainders tell the compiler that offsets
// lie within the tiles: then loads need no checks, which would halve their pace.
const kTokenGroups = 2u;  // subgroups along the tokens
const kRowGroups = 2u;
const kSubgroupTokens = 32u;

struct Sums {
  s00: Result,
  s01: Result,
  s10: Result,
  s11: Result,
}

// Adds the products of a step, 64 columns.
fn accumulate(sums: ptr<function, Sums>, lane: u32) {
  for (var k = 0u; k < 8u; k += 2u) {
    let t = lane / kLanes / kRowGroups % kTokenGroups * kSubgroupTokens * kLine + k % 8u;
    let r = lane / kLanes % kRowGroups * kSubgroupRows * kLine + k % 8u;
    let r0 = subgroupMatrixLoad<Right, col_major>(&w_tile, r, kLine);
    let r1 = subgroupMatrixLoad<Right, col_major>(&w_tile, r + 16u * kLine, kLine);
    let t0 = subgroupMatrixLoad<Left, row_major>(&x_tile, t, kLine);
    (*sums).s00 = subgroupMatrixMultiplyAccumulate(t0, r0, (*sums).s00);
    (*sums).s01 = subgroupMatrixMultiplyAccumulate(t0, r1, (*sums).s01);
    let t1 = subgroupMatrixLoad<Left, row_major>(&x_tile, t + 16u * kLine, kLine);
    (*sums).s10 = subgroupMatrixMultiplyAccumulate(t1, r0, (*sums).s10);
    (*sums).s11 = subgroupMatrixMultiplyAccumulate(t1, r1, (*sums).s11);
  }
}

fn store_sums(place: Place, sums: ptr<function, Sums>) {
  emit(place, 0u, (*sums).s00, (*sums).s01);
  emit(place, 16u, (*sums).s10, (*sums).s11);
}

// kernel: matmul_matrix
// out [tokens, rows] = x [tokens, cols] · Wᵀ (+ bias) for many tokens by subgroup matrices: x and weights in f16
// (activations.wgsl), sums in f32.
//
// A workgroup owns a tile of rows × tokens and goes along the columns in steps of 64. The bytes of the next step are on
// their way into registers while a step is computed; they are decoded once, into workgroup memory, and used by every
// subgroup from there. Sums leave the matrices through workgroup memory, too: nothing else may look into them.
// Grid: x row tiles, y token tiles, z parts of the columns (whose sums matmul.wgsl adds).
enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
// use: bytes
// use: weights = q4_k | q6_k
// use: subgroup_tile = t64 | t32

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
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;   // [tokens][steps · 8]: f16 of 8 columns
@group(0) @binding(2) var<storage, read> x_scales: array<f32>;  // [tokens]
@group(0) @binding(3) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;

const kLanes = 32u;      // of a subgroup
const kSubgroupRows = 32u;  // of a subgroup
const kTileTokens = kTokenGroups * kSubgroupTokens;
const kTileRows = kRowGroups * kSubgroupRows;
const kThreads = kTokenGroups * kRowGroups * kLanes;  // as many as a step has pieces of W

// f16 of 64 columns a line, and 16 bytes that are not used: so eight lines lie in different banks. After the last step
// w_tile holds sums.
const kLine = 9u;
var<workgroup> w_tile: array<vec4<u32>, kTileRows * kLine>;
var<workgroup> x_tile: array<vec4<u32>, kTileTokens * kLine>;

struct Place {
  lane: u32,
  first_row: u32,
  first_token: u32,
  split: u32,
}

// What a thread brings in for a step: a piece of W, four groups of 8 columns of x.
struct Fetched {
  w: Raw,
  x0: vec4<u32>,
  x1: vec4<u32>,
  x2: vec4<u32>,
  x3: vec4<u32>,
}

// Rows, tokens and pieces past the end are read from the last one: x is zero past the end of its row, and sums of rows and
// tokens that are not there are not stored.
fn piece_of(place: Place, step: u32) -> u32 {
  return min(step * 2u + place.lane % 2u, params.pieces - 1u);
}
fn fetch_x(place: Place, step: u32, i: u32) -> vec4<u32> {
  let token = min(place.first_token + i / 8u, params.tokens - 1u);
  return x[(token * params.steps + step) * 8u + i % 8u];
}
fn fetch(place: Place, step: u32) -> Fetched {
  let row = min(place.first_row + place.lane / 2u, params.rows - 1u);
  return Fetched(load_raw(row * params.stride, piece_of(place, step), params.pieces),
                 fetch_x(place, step, place.lane), fetch_x(place, step, place.lane + kThreads),
                 fetch_x(place, step, place.lane + 2u * kThreads), fetch_x(place, step, place.lane + 3u * kThreads));
}

fn pack_f16(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}
fn store(place: Place, step: u32, f: Fetched) {
  let v = raw_values(f.w, piece_of(place, step));
  let at = place.lane / 2u * kLine + place.lane % 2u * 4u;
  w_tile[at] = pack_f16(v.a, v.b);
  w_tile[at + 1u] = pack_f16(v.c, v.d);
  w_tile[at + 2u] = pack_f16(v.e, v.f);
  w_tile[at + 3u] = pack_f16(v.g, v.h);
  let line = place.lane / 8u * kLine + place.lane % 8u;
  x_tile[line] = f.x0;
  x_tile[line + kThreads / 8u * kLine] = f.x1;
  x_tile[line + kThreads / 4u * kLine] = f.x2;
  x_tile[line + kThreads * 3u / 8u * kLine] = f.x3;
}

fn emit_one(place: Place, row: u32, token: u32, value: f32) {
  if (row < params.rows && token < params.tokens) {
    out[params.out_first + place.split * params.out_split + token * params.out_stride + row] = value;
  }
}
// Two matrices side by side: all rows of a subgroup, 16 tokens from token `first` of its tile.
fn emit(place: Place, first: u32, left: Result, right: Result) {
  let group = place.lane / kLanes % (kTokenGroups * kRowGroups);
  let at = group * 16u * (kSubgroupRows / 4u);
  subgroupMatrixStore<row_major>(&w_tile, at, left, kSubgroupRows / 4u);
  subgroupMatrixStore<row_major>(&w_tile, at + 4u, right, kSubgroupRows / 4u);
  workgroupBarrier();
  let row = place.first_row + group % kRowGroups * kSubgroupRows + place.lane % kLanes;
  var offset = 0.0;
  if (params.bias == 1u) {
    offset = bias[params.bias_first + min(row, params.rows - 1u)];
  }
  let token = place.first_token + group / kRowGroups * kSubgroupTokens + first;
  for (var t = 0u; t < 16u; t += 4u) {
    let i = at + t * (kSubgroupRows / 4u) + place.lane % kLanes / 4u;
    let c = place.lane % 4u;
    let sums = bitcast<vec4<f32>>(vec4<u32>(w_tile[i][c], w_tile[i + 8u][c], w_tile[i + 16u][c], w_tile[i + 24u][c]));
    let last = params.tokens - 1u;
    let scales = vec4<f32>(x_scales[min(token + t, last)], x_scales[min(token + t + 1u, last)],
                           x_scales[min(token + t + 2u, last)], x_scales[min(token + t + 3u, last)]);
    let v = fma(sums, scales, vec4<f32>(offset));
    emit_one(place, row, token + t, v.x);
    emit_one(place, row, token + t + 1u, v.y);
    emit_one(place, row, token + t + 2u, v.z);
    emit_one(place, row, token + t + 3u, v.w);
  }
  workgroupBarrier();
}

@compute @workgroup_size(kThreads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let place = Place(lane, id.x * kTileRows, id.y * kTileTokens, id.z);
  let first = id.z * params.split_steps;
  let end = min(first + params.split_steps, params.steps);
  var sums: Sums;
  var next = fetch(place, first);
  for (var step = first; step < end; step++) {
    workgroupBarrier();  // until the step before has been read
    store(place, step, next);
    workgroupBarrier();
    if (step + 1u < end) {
      next = fetch(place, step + 1u);
    }
    accumulate(&sums, lane);
  }
  workgroupBarrier();
  store_sums(place, &sums);
}
