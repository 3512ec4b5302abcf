// Rows of one chosen expert, gate and up in turn: what lib/project.wgsl reads, and what becomes of its sums.
var<private> expert_row: u32;           // the expert's first row, in this part of W
var<private> expert_bias: u32;          // and in the biases
var<private> expert_slot: u32;
var<private> bias_ahead: vec2<f32>;     // of the pair that this thread stores for the next band

fn take_expert(expert: u32, slot: u32, first: u32, thread: u32) {
  expert_row = (expert - params.first_expert) * params.rows;
  expert_bias = expert * params.rows;
  expert_slot = slot;
  bias_ahead = pair_bias(0u, first, thread);
}

// Rows past the end read the last row again; nothing is stored for them.
fn load_place(row: u32, piece: u32) -> Raw {
  return load_raw((expert_row + min(row, params.rows - 1u)) * params.stride, piece, params.pieces);
}

fn pair_bias(band: u32, first: u32, thread: u32) -> vec2<f32> {
  let row = band_row(band, first, thread) + 2u * (thread % lanes);
  if (params.bias == 0u || thread % lanes >= rows / 2u || row >= params.rows) {
    return vec2<f32>(0.0);
  }
  return vec2<f32>(bias[expert_bias + row], bias[expert_bias + row + 1u]);
}

// sums: of the places, this thread's share. Thread i of the team stores pair i of the band.
fn finish_band(band: u32, sums: vec4<f32>, first: u32, thread: u32) {
  let total = band_total(sums, thread);
  let lane = thread % lanes;
  let row = band_row(band, first, thread);
  if (lane < rows / 2u && row + 2u * lane < params.rows) {
    let pair = select(total.xy, total.zw, lane == 1u) + bias_ahead;
    put_result(row / 2u + lane, activate(params.activation, pair.x, pair.y, params.limit, params.alpha));
  }
  if (band + 1u < bands) {
    bias_ahead = pair_bias(band + 1u, first, thread);
  }
}
