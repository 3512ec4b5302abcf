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
