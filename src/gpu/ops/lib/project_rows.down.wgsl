// The rows of all chosen experts as one: pieces of the first expert, then of the second, … What lib/project.wgsl reads,
// and what becomes of its sums.
const kMostSlots = 32u;
override own_pieces: u32 = 1;  // of one expert's row
var<workgroup> slot_rows: array<u32, kMostSlots>;     // the expert's first row, in this part of W
var<workgroup> slot_experts: array<u32, kMostSlots>;
var<workgroup> slot_weights: array<f32, kMostSlots>;  // zero for an expert of another part
var<private> bias_ahead: vec4<f32>;  // thread i of a team: weight · bias of the i-th expert, for the next band's rows

fn take_slots(thread: u32) {
  if (thread < params.k) {
    let expert = u32(route[thread]);
    let here = expert >= params.first_expert && expert < params.first_expert + params.part_experts;
    slot_experts[thread] = expert;
    slot_rows[thread] = select(0u, expert - params.first_expert, here) * params.rows;
    slot_weights[thread] = select(0.0, route[params.k + thread], here);
  }
}
fn slot_weight(piece: u32) -> f32 {
  return slot_weights[piece / own_pieces];
}
// Rows past the end read the last row again; nothing is stored for them.
fn load_place(row: u32, piece: u32) -> Raw {
  let slot = piece / own_pieces;
  return load_raw((slot_rows[slot] + min(row, params.rows - 1u)) * params.stride, piece % own_pieces, own_pieces);
}

// Of the rows of a band, this thread's share of the experts.
fn row_biases(band: u32, first: u32, thread: u32) -> vec4<f32> {
  var sum = vec4<f32>(0.0);
  if (params.bias == 0u) {
    return sum;
  }
  let row = band_row(band, first, thread);
  for (var slot = thread % lanes; slot < params.k; slot += lanes) {
    let at = slot_experts[slot] * params.rows;
    var four = vec4<f32>(0.0);
    for (var i = 0u; i < rows; i++) {
      four[i] = bias[at + min(row + i, params.rows - 1u)];
    }
    sum += slot_weights[slot] * four;
  }
  return sum;
}

// sums: of the places, this thread's share. Thread i of the team stores row i of the band.
fn finish_band(band: u32, sums: vec4<f32>, first: u32, thread: u32) {
  // A bias is added once: places are rows in turn, and past the last row they are zero.
  let total = band_total(sums + bias_ahead, thread);
  let lane = thread % lanes;
  let row = band_row(band, first, thread);
  if (lane < rows && row + lane < params.rows) {
    let pair = select(total.xy, total.zw, lane >= 2u);
    var sum = select(pair.x, pair.y, (lane & 1u) == 1u);
    if (params.add == 1u) {
      sum += y[row + lane];
    }
    y[row + lane] = sum;
  }
  if (band + 1u < bands) {
    bias_ahead = row_biases(band + 1u, first, thread);
  }
}
fn finish_results(first: u32, thread: u32) {}
