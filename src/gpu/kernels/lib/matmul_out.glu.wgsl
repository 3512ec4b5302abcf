// The first half of the tile's rows are of the gate, the second half the same rows of `up`; out = a(gate) · up. So the
// first half of a thread's rows are of the gate, too, and the second half the same of `up`.
const kMatrices: u32 = 2;

fn weight_quad(second: bool, i: u32) -> vec4<u32> {
  if (second) {
    return up4[i];
  }
  return w4[i];
}

// The cut keeps exp from overflowing, which WGSL leaves undefined; sigmoid(-80) is 2e-35.
fn sigmoid(v: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-v, 80.0)));
}
// 0: gelu_tanh(g) · u   1: silu(g) · u   2: g · sigmoid(alpha · g) · (u + 1), g and u clamped by `limit`
fn activate(g: f32, u: f32) -> f32 {
  if (params.activation == 0u) {
    // 0.5 · (1 + tanh(t)) is sigmoid(2t), without the cancellation.
    return g * sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u;
  }
  if (params.activation == 1u) {
    return g * sigmoid(g) * u;
  }
  let cut = min(g, params.limit);
  return cut * sigmoid(params.alpha * cut) * (clamp(u, -params.limit, params.limit) + 1.0);
}

fn emit_one(token: u32, row: u32, g: f32, u: f32) {
  if (row < params.rows) {
    out[params.out_first + token * params.out_stride + row] = activate(g, u);
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
