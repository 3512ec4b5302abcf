// Decode projections of chosen experts.

// snippet: project_rows = up
// Rows of one chosen expert, gate and up in turn: what lib/project.wgsl reads, and what becomes of its sums.
var<private> column: u32;
var<private> expert_row: u32;           // the expert's first row, in this part of W
var<private> expert_bias: u32;          // and in the biases
var<private> expert_rank: u32;
var<private> bias_ahead: vec2<f32>;     // of the pair that this thread stores for the next band

fn take_expert(expert: u32, rank: u32, first: u32, thread: u32) {
  expert_row = (expert - params.first_expert) * params.rows;
  expert_bias = expert * params.rows;
  expert_rank = rank;
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
fn band_epilogue(band: u32, sums: vec4<f32>, first: u32, thread: u32) {
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

// snippet: project_rows = down
// The rows of all chosen experts as one: pieces of the first expert, then of the second, … What lib/project.wgsl reads,
// and what becomes of its sums.
const kMaxRanks = 32u;
override own_pieces: u32 = 1;  // of one expert's row
var<private> column: u32;
var<workgroup> rank_rows: array<u32, kMaxRanks>;     // the expert's first row, in this part of W
var<workgroup> rank_experts: array<u32, kMaxRanks>;
var<workgroup> rank_weights: array<f32, kMaxRanks>;  // zero for an expert of another part
var<private> bias_ahead: vec4<f32>;  // thread i of a team: weight · bias of the i-th expert, for the next band's rows

fn take_ranks(thread: u32) {
  if (thread < params.k) {
    let expert = u32(route[column * 2u * params.k + thread]);
    let here = expert >= params.first_expert && expert < params.first_expert + params.part_experts;
    rank_experts[thread] = expert;
    rank_rows[thread] = select(0u, expert - params.first_expert, here) * params.rows;
    rank_weights[thread] = select(0.0, route[(column * 2u + 1u) * params.k + thread], here);
  }
}
fn rank_weight(piece: u32) -> f32 {
  return rank_weights[piece / own_pieces];
}
// Rows past the end read the last row again; nothing is stored for them.
fn load_place(row: u32, piece: u32) -> Raw {
  let rank = piece / own_pieces;
  return load_raw((rank_rows[rank] + min(row, params.rows - 1u)) * params.stride, piece % own_pieces, own_pieces);
}

// Of the rows of a band, this thread's share of the experts.
fn row_biases(band: u32, first: u32, thread: u32) -> vec4<f32> {
  var sum = vec4<f32>(0.0);
  if (params.bias == 0u) {
    return sum;
  }
  let row = band_row(band, first, thread);
  for (var rank = thread % lanes; rank < params.k; rank += lanes) {
    let at = rank_experts[rank] * params.rows;
    var four = vec4<f32>(0.0);
    for (var i = 0u; i < rows; i++) {
      four[i] = bias[at + min(row + i, params.rows - 1u)];
    }
    sum += rank_weights[rank] * four;
  }
  return sum;
}

// sums: of the places, this thread's share. Thread i of the team stores row i of the band.
fn band_epilogue(band: u32, sums: vec4<f32>, first: u32, thread: u32) {
  // A bias is added once: places are rows in turn, and past the last row they are zero.
  let total = band_total(sums + bias_ahead, thread);
  let lane = thread % lanes;
  let row = band_row(band, first, thread);
  if (lane < rows && row + lane < params.rows) {
    let pair = select(total.xy, total.zw, lane >= 2u);
    var sum = select(pair.x, pair.y, (lane & 1u) == 1u);
    if (params.add == 1u) {
      sum += y[column * params.rows + row + lane];
    }
    y[column * params.rows + row + lane] = sum;
  }
  if (band + 1u < bands) {
    bias_ahead = row_biases(band + 1u, first, thread);
  }
}
fn flush_results(first: u32, thread: u32) {}

// snippet: up_out = plain
// Results of an expert's gate and up as they are, expert by expert. y: array<u32>, the bits of f32.
fn put_result(at: u32, value: f32) {
  y[column * params.between + expert_rank * (params.rows / 2u) + at] = bitcast<u32>(value);
}
fn flush_results(first: u32, thread: u32) {}

// snippet: up_out = int16
// Results of an expert's gate and up as 16-bit integers (lib/mxfp4.wgsl), ready for the down projection
// (lib/mxfp4.wgsl): twenty words per piece of 32: the high bytes, the low bytes, the scale, three unused. A workgroup
// makes whole pieces: groups · rows · bands is a multiple of 64, an expert's results of 32.
var<workgroup> results: array<f32, groups * rows * bands / 2u>;

fn put_result(at: u32, value: f32) {
  results[at % (groups * rows * bands / 2u)] = value;
}
fn flush_results(first: u32, thread: u32) {
  workgroupBarrier();
  let piece = first / 64u + thread;
  if (thread >= groups * rows * bands / 64u || piece * 64u >= params.rows) {
    return;
  }
  var quads: array<vec4<f32>, 8>;
  for (var k = 0u; k < 8u; k++) {
    let at = thread * 32u + k * 4u;
    quads[k] = vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
  }
  let v = sixteen_bits(quads);
  let to = column * params.between + (expert_rank * (params.rows / 64u) + piece) * 20u;
  for (var i = 0u; i < 4u; i++) {
    y[to + i] = v.high_low[i];
    y[to + 4u + i] = v.high_high[i];
    y[to + 8u + i] = v.low_low[i];
    y[to + 12u + i] = v.low_high[i];
  }
  y[to + 16u] = bitcast<u32>(v.scale);
}
