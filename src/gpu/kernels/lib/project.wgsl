// The heart of every decode projection: W · x for one token, x already in workgroup memory. A kernel that uses this
// declares bindings w, w4 (the same packed rows as words and as vec4), bias and y, and puts into Params:
//   cols, pieces (= the constant most_pieces), stride (vec4<u32> from row to row), rows (of this part of W), first_row (of this part, in y), bias (0, 1),
//   softcap (0: none)
// Its main() calls prefetch(), then fills x with x_put(), then finish_x(), then project().
//
// A thread owns one piece of 32 columns and goes down `rows` rows with it; `lanes` threads cover a row, `groups` teams
// work on different rows. The weights of the first rows are on their way from memory while x is made ready. Partial sums
// meet in workgroup memory, so no subgroup is needed and the order of the sum is fixed.
override lanes: u32 = 32;   // threads along a row
override groups: u32 = 1;   // teams of lanes
override rows: u32 = 1;     // rows a thread: 1, 2 or a multiple of 4
override split: u32 = 1;    // threads that add up one row's partial sums
override glu: u32 = 0;      // 0: store; 1: gelu_tanh, 2: silu of row r times row r + half, stored as row r

var<workgroup> partial: array<f32, lanes * groups * rows>;  // [row][lane]
var<workgroup> sums: array<f32, split * groups * rows>;     // [row][part]

var<private> raw0: Raw;
var<private> raw1: Raw;
var<private> raw2: Raw;
var<private> raw3: Raw;

// Rows past the end read the last row again; nothing is stored for them. With an activation, W is gate over up and
// their rows are gone through in turn, so that both sums of an output meet in one workgroup.
fn row_at(row: u32) -> u32 {
  let r = min(row, params.rows - 1u);
  if (glu > 0u) {
    return (r / 2u + (r & 1u) * (params.rows / 2u)) * params.stride;
  }
  return r * params.stride;
}
fn fetch(row: u32, piece: u32) {
  raw0 = load_raw(row_at(row), piece, params.pieces);
  if (rows > 1u) {
    raw1 = load_raw(row_at(row + groups), piece, params.pieces);
  }
  if (rows > 2u) {
    raw2 = load_raw(row_at(row + 2u * groups), piece, params.pieces);
    raw3 = load_raw(row_at(row + 3u * groups), piece, params.pieces);
  }
}
fn prefetch(first: u32, thread: u32) {
  fetch(first + thread / lanes, min(thread % lanes, params.pieces - 1u));
}

fn activation(gate: f32) -> f32 {
  if (glu == 1u) {
    // tanh(z) = 1 − 2 / (exp(2z) + 1); the exponent is bounded where tanh is 1 anyway.
    let z = 0.7978845608 * (gate + 0.044715 * gate * gate * gate);
    return gate * (1.0 - 1.0 / (exp(min(2.0 * z, 80.0)) + 1.0));
  }
  return gate / (1.0 + exp(-gate));
}

fn row_sum(i: u32) -> f32 {
  var sum = 0.0;
  for (var j = 0u; j < split; j++) {
    sum += sums[i * split + j];
  }
  return sum;
}

// first: the workgroup's first row.
fn project(first: u32, thread: u32) {
  let lane = thread % lanes;
  let group = thread / lanes;
  for (var i = 0u; i < rows; i++) {
    partial[(i * groups + group) * lanes + lane] = 0.0;
  }
  for (var piece = lane; piece < most_pieces; piece += lanes) {
    let x = x_piece(piece);
    for (var i = 0u; i < rows; i += 4u) {
      let row = first + i * groups + group;
      if (piece != lane || i != 0u) {
        fetch(row, piece);
      }
      let at = (i * groups + group) * lanes + lane;
      partial[at] += x_dot(raw0, piece, x);
      if (rows > 1u) {
        partial[at + groups * lanes] += x_dot(raw1, piece, x);
      }
      if (rows > 2u) {
        partial[at + 2u * groups * lanes] += x_dot(raw2, piece, x);
        partial[at + 3u * groups * lanes] += x_dot(raw3, piece, x);
      }
    }
  }
  workgroupBarrier();

  let kept = groups * rows;  // rows of this workgroup
  for (var i = thread; i < kept * split; i += lanes * groups) {
    var sum = 0.0;
    for (var j = i % split; j < lanes; j += split) {
      sum += partial[i / split * lanes + j];
    }
    sums[i] = sum;
  }
  workgroupBarrier();
  if (glu > 0u) {
    for (var i = thread * 2u; i + 1u < kept; i += lanes * groups * 2u) {
      if (first + i < params.rows) {
        y[params.first_row + (first + i) / 2u] = activation(row_sum(i)) * row_sum(i + 1u);
      }
    }
    return;
  }
  for (var i = thread; i < kept; i += lanes * groups) {
    if (first + i < params.rows) {
      let at = params.first_row + first + i;
      var sum = row_sum(i);
      if (params.bias == 1u) {
        sum += bias[at];
      }
      if (params.softcap > 0.0) {
        sum = params.softcap * tanh(clamp(sum / params.softcap, -20.0, 20.0));
      }
      y[at] = sum;
    }
  }
}
