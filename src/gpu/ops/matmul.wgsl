// What the matrix products of many tokens share: which rows and tokens a tile takes, where its sums go, and the sum of
// splits.

// snippet: matmul_tokens = all
// A tile of a matrix product takes rows and tokens as they come. Past the end the last one is taken again.
fn weight_row(place: Place, tile_row: u32) -> u32 {
  return min(place.first_row + tile_row, params.rows - 1u);
}
fn x_token(place: Place, tile_token: u32) -> u32 {
  return min(place.first_token + tile_token, params.tokens - 1u);
}

// snippet: matmul_tokens = chosen
// A tile of a matrix product takes tokens that chose one expert, and rows of that expert. A kernel that uses this has
// bindings tiles and entries (route.wgsl) and params.rows (of an expert), entries_per_row (entries that read one row of
// x), first_expert and experts (of this part of W). A tile says whose rows it takes (own.x) and the page of W where they
// are (own.w): the same number, but for experts that are paged.
var<workgroup> tile_entries: array<u32, tile_tokens>;
var<private> tile_expert: u32;
var<private> tile_page: u32;
var<private> tile_count: u32;

// False: there is nothing to do in this tile.
fn take_tile(tile: u32, lane: u32) -> bool {
  let own = tiles[tile];
  tile_expert = own.x;
  tile_page = own.w - params.first_expert;
  tile_count = own.z;
  if (own.z == 0u || own.w < params.first_expert || own.w >= params.first_expert + params.experts) {
    return false;
  }
  for (var i = lane; i < tile_tokens; i += threads) {
    tile_entries[i] = entries[own.y + min(i, own.z - 1u)];
  }
  workgroupBarrier();
  return true;
}

fn weight_row(place: Place, tile_row: u32) -> u32 {
  return tile_page * params.rows + min(place.first_row + tile_row, params.rows - 1u);
}
fn x_token(place: Place, tile_token: u32) -> u32 {
  return tile_entries[tile_token] / params.entries_per_row;
}

// snippet: matmul_out = plain
// Sums go to `out` as they are, with the bias.
fn emit_one(place: Place, token: u32, row: u32, value: f32) {
  if (row < params.rows) {
    var v = value;
    if (params.bias == 1u) {
      v += bias[params.bias_first + row];
    }
    out[params.out_first + place.split * params.out_split + token * params.out_stride + row] = v;
  }
}
// Four rows, `row_lanes` apart, of a token of the tile. group: which four of the thread's.
fn emit(place: Place, tile_token: u32, group: u32, v: vec4<f32>) {
  let token = place.first_token + tile_token;
  let row = place.first_row + group * 4u * row_lanes + place.row;
  if (token < params.tokens) {
    emit_one(place, token, row, v.x);
    emit_one(place, token, row + row_lanes, v.y);
    emit_one(place, token, row + 2u * row_lanes, v.z);
    emit_one(place, token, row + 3u * row_lanes, v.w);
  }
}
fn emit_pair(place: Place, tile_token: u32, first: vec4<f32>, second: vec4<f32>) {
  emit(place, tile_token, 0u, first);
  emit(place, tile_token, 1u, second);
}

// snippet: matmul_out = chosen
// Sums of the tokens that chose an expert (matmul.wgsl), with its bias; entry e goes to row e of out.
fn emit_one(entry: u32, row: u32, value: f32) {
  if (row < params.rows) {
    var v = value;
    if (params.bias == 1u) {
      v += bias[tile_expert * params.rows + row];
    }
    out[entry * params.rows + row] = v;
  }
}
// Four rows, `row_lanes` apart, of a token of the tile. group: which four of the thread's.
fn emit(place: Place, tile_token: u32, group: u32, v: vec4<f32>) {
  let row = place.first_row + group * 4u * row_lanes + place.row;
  if (tile_token < tile_count) {
    let entry = tile_entries[tile_token];
    emit_one(entry, row, v.x);
    emit_one(entry, row + row_lanes, v.y);
    emit_one(entry, row + 2u * row_lanes, v.z);
    emit_one(entry, row + 3u * row_lanes, v.w);
  }
}
fn emit_pair(place: Place, tile_token: u32, first: vec4<f32>, second: vec4<f32>) {
  emit(place, tile_token, 0u, first);
  emit(place, tile_token, 1u, second);
}

// kernel: matmul_sum
// out [tokens, rows] = Σ over the parts of `parts` [splits, tokens, rows] (+ bias): the end of a matrix product whose
// columns were shared among workgroups.
// use: index

override threads: u32 = 256;

struct Params {
  tokens: u32,
  rows: u32,
  splits: u32,
  out_first: u32,   // element of out that takes row 0 of token 0
  out_stride: u32,  // elements from token to token of out
  bias: u32,        // 1: add bias
  bias_first: u32,  // element of bias for row 0
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  let size = params.tokens * params.rows;
  if (i >= size) {
    return;
  }
  let row = i % params.rows;
  var sum = 0.0;
  if (params.bias == 1u) {
    sum = bias[params.bias_first + row];
  }
  for (var s = 0u; s < params.splits; s++) {
    sum += parts[s * size + i];
  }
  out[params.out_first + i / params.rows * params.out_stride + row] = sum;
}
