// Rows of a decode projection that lie one after another: what lib/project.wgsl reads, and what becomes of its sums.
override glu: u32 = 0;  // 0: store; 1: gelu_tanh, 2: silu of row r times row r + half, stored as row r

// Rows past the end read the last row again; nothing is stored for them. With an activation, W is gate over up and
// their rows are gone through in turn, so that both sums of an output meet in one thread.
fn row_at(row: u32) -> u32 {
  let r = min(row, params.rows - 1u);
  if (glu > 0u) {
    return (r / 2u + (r & 1u) * (params.rows / 2u)) * params.stride;
  }
  if (r >= params.second_row) {
    return params.second_at + (r - params.second_row) * params.second_stride;
  }
  return r * params.stride;
}
fn load_place(row: u32, piece: u32) -> Raw {
  return load_raw(row_at(row), piece, params.pieces);
}

fn activation(gate: f32) -> f32 {
  if (glu == 1u) {
    // tanh(z) = 1 − 2 / (exp(2z) + 1); the exponent is bounded where tanh is 1 anyway.
    let z = 0.7978845608 * (gate + 0.044715 * gate * gate * gate);
    return gate * (1.0 - 1.0 / (exp(min(2.0 * z, 80.0)) + 1.0));
  }
  return gate / (1.0 + exp(-gate));
}

// sums: of the places, this thread's share. Thread i of the team stores row i of the band.
fn finish_band(band: u32, sums: vec4<f32>, first: u32, thread: u32) {
  let total = band_total(sums, thread);
  let lane = thread % lanes;
  let row = band_row(band, first, thread);
  if (glu > 0u) {
    if (lane < rows / 2u && row + 2u * lane < params.rows) {
      let pair = select(total.xy, total.zw, lane == 1u);
      put_result(params.first_row + row / 2u + lane, activation(pair.x) * pair.y);
    }
    return;
  }
  if (lane < rows && row + lane < params.rows) {
    let at = params.first_row + row + lane;
    let pair = select(total.xy, total.zw, lane >= 2u);
    var sum = select(pair.x, pair.y, (lane & 1u) == 1u);
    if (params.bias == 1u) {
      sum += bias[at];
    }
    if (params.softcap > 0.0) {
      sum = params.softcap * tanh(clamp(sum / params.softcap, -20.0, 20.0));
    }
    put_result(at, sum);
  }
}
