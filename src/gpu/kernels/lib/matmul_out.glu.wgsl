// The first half of the tile's rows are of the gate, the second half the same rows of `up`; out = a(gate) · up. So the
// first half of a thread's rows are of the gate, too, and the second half the same of `up`.
const kMatrices: u32 = 2;

fn weight_quad(second: bool, i: u32) -> vec4<u32> {
  if (second) {
    return up4[i];
  }
  return w4[i];
}

fn emit_one(token: u32, row: u32, g: f32, u: f32) {
  if (row < params.rows) {
    out[params.out_first + token * params.out_stride + row] =
        activate(params.activation, g, u, params.limit, params.alpha);
  }
}
fn emit(place: Place, tile_token: u32, group: u32, v: vec4<f32>) {
  let token = place.first_token + tile_token;
  let row = place.first_row + place.row;
  if (token < params.tokens) {
    emit_one(token, row, v.x, v.z);
    emit_one(token, row + row_lanes, v.y, v.w);
  }
}
fn emit_pair(place: Place, tile_token: u32, gate: vec4<f32>, up: vec4<f32>) {
  let token = place.first_token + tile_token;
  let row = place.first_row + place.row;
  if (token < params.tokens) {
    emit_one(token, row, gate.x, up.x);
    emit_one(token, row + row_lanes, gate.y, up.y);
    emit_one(token, row + 2u * row_lanes, gate.z, up.z);
    emit_one(token, row + 3u * row_lanes, gate.w, up.w);
  }
}
