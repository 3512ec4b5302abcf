// Sums of the tokens that chose an expert (matmul_tokens.chosen.wgsl), with its bias; entry e goes to row e of out.
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
