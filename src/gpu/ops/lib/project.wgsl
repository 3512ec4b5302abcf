// Decode projections.

// snippet: project
// The heart of every decode projection: W · x for one token, x already in workgroup memory. A kernel that uses this
// declares bindings w2, w4 (the same packed rows in twos and fours of words), bias and y, and puts into Params:
//   cols, pieces (= the constant max_pieces), stride (vec4<u32> from row to row), rows (of this part of W),
//   first_row (of this part, in y), bias (0, 1), softcap (0: none),
//   second_row (rows from here on are of a second matrix), second_at (its first vec4<u32>), second_stride
// Its main() calls prefetch(), then fills x with x_put(), then prepare_x(), then project().
//
// A team of `lanes` neighbouring threads covers a row: thread i owns the pieces i, i + lanes, … of 32 columns. A step is
// four pieces per thread: of `rows` neighbouring rows, 4 / rows pieces each. The weights of two steps are on their way
// from memory while x is made ready, and two steps ahead from then on. A team's sums meet in team_sum().
override lanes: u32 = 4;    // threads of a team, a power of two, at least 4
override groups: u32 = 1;   // teams of a workgroup
override rows: u32 = 1;     // 1, 2 or 4 rows per team at a time
override bands: u32 = 1;     // how many times
override steps: u32 = 1;    // a band: ⌈pieces / (lanes · 4 / rows)⌉

struct Four {
  a: Raw,
  b: Raw,
  c: Raw,
  d: Raw,
}
var<private> even: Four;
var<private> odd: Four;
var<private> result_scale: f32 = 1.0;  // of all sums, before the bias

fn band_row(band: u32, first: u32, thread: u32) -> u32 {
  return first + (band * groups + thread / lanes) * rows;
}
// The piece of place k (0 … 3) of a step.
fn place_piece(step: u32, k: u32, thread: u32) -> u32 {
  return (step * (4u / rows) + k / rows) * lanes + thread % lanes;
}
// Is there anything at place k, for any thread?
fn is_place(step: u32, k: u32) -> bool {
  return (step * (4u / rows) + k / rows) * lanes < max_pieces;
}
fn fetch_place(band: u32, step: u32, k: u32, first: u32, thread: u32) -> Raw {
  if (!is_place(step, k)) {
    return Raw();
  }
  let piece = min(place_piece(step, k, thread), params.pieces - 1u);
  return load_place(band_row(band, first, thread) + k % rows, piece);
}
// turn: of all steps of all bands.
fn fetch(turn: u32, first: u32, thread: u32) -> Four {
  let band = turn / steps;
  let step = turn % steps;
  return Four(fetch_place(band, step, 0u, first, thread), fetch_place(band, step, 1u, first, thread),
              fetch_place(band, step, 2u, first, thread), fetch_place(band, step, 3u, first, thread));
}
fn prefetch(first: u32, thread: u32) {
  even = fetch(0u, first, thread);
  if (bands * steps > 1u) {
    odd = fetch(1u, first, thread);
  }
}

fn add_place(sum: f32, raw: Raw, step: u32, k: u32, thread: u32) -> f32 {
  if (!is_place(step, k)) {
    return sum;
  }
  let piece = place_piece(step, k, thread);
  let there = min(piece, params.pieces - 1u);
  return select(sum, x_add(sum, raw, there, x_piece(there)), piece < params.pieces);
}
// sums: of the rows of a band. A thread adds up its pieces of a row from the first to the last, however many rows share
// a step: so the sums are those of project_batch.wgsl, bit for bit.
fn add_step(sums: vec4<f32>, four: Four, step: u32, thread: u32) -> vec4<f32> {
  let a = add_place(sums.x, four.a, step, 0u, thread);
  if (rows == 1u) {
    let ab = add_place(a, four.b, step, 1u, thread);
    let abc = add_place(ab, four.c, step, 2u, thread);
    return vec4<f32>(add_place(abc, four.d, step, 3u, thread), 0.0, 0.0, 0.0);
  }
  let b = add_place(sums.y, four.b, step, 1u, thread);
  if (rows == 2u) {
    return vec4<f32>(add_place(a, four.c, step, 2u, thread), add_place(b, four.d, step, 3u, thread), 0.0, 0.0);
  }
  return vec4<f32>(a, b, add_place(sums.z, four.c, step, 2u, thread), add_place(sums.w, four.d, step, 3u, thread));
}

// The sums of a team's rows, the same in each of its threads. sums: this thread's share.
fn band_total(sums: vec4<f32>, thread: u32) -> vec4<f32> {
  return team_sum(sums, thread) * result_scale;
}

// first: the workgroup's first row.
fn project(first: u32, thread: u32) {
  var sums = vec4<f32>(0.0);
  for (var turn = 0u; turn < bands * steps; turn += 2u) {
    sums = add_step(sums, even, turn % steps, thread);
    if (turn + 2u < bands * steps) {
      even = fetch(turn + 2u, first, thread);
    }
    if ((turn + 1u) % steps == 0u) {
      band_epilogue(turn / steps, sums, first, thread);
      sums = vec4<f32>(0.0);
    }
    if (turn + 1u < bands * steps) {
      sums = add_step(sums, odd, (turn + 1u) % steps, thread);
      if (turn + 3u < bands * steps) {
        odd = fetch(turn + 3u, first, thread);
      }
      if ((turn + 2u) % steps == 0u) {
        band_epilogue((turn + 1u) / steps, sums, first, thread);
        sums = vec4<f32>(0.0);
      }
    }
  }
  flush_results(first, thread);
}

// snippet: dense_rows
// Rows of a decode projection that lie one after another, and what becomes of a row's sum.
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

// sum: of the row that lands at y's place `at`.
fn finished(sum: f32, at: u32) -> f32 {
  var result = sum;
  if (params.bias == 1u) {
    result += bias[at];
  }
  if (params.softcap > 0.0) {
    result = soft_cap(result, params.softcap);
  }
  return result;
}

// snippet: project_rows = dense
// sums: of the places, this thread's share. Thread i of the team stores row i of the band.
fn band_epilogue(band: u32, sums: vec4<f32>, first: u32, thread: u32) {
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
    put_result(at, finished(select(pair.x, pair.y, (lane & 1u) == 1u), at));
  }
}
