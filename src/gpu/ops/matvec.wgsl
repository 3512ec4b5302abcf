// y = W · x (+ bias) for one column, or a few: column z of the grid is a row of x. Computes from the packed bytes.
//
// A thread owns one piece of 32 consecutive columns of W and keeps that piece of x in registers while it goes down
// `rows` rows: one or two 16-byte loads a row, four rows in flight. `lanes` threads cover a row's pieces (in several
// turns if there are more), `groups` such teams work on different rows. Partial sums meet in workgroup memory at the
// end, so no subgroup is needed and the order of the sum is fixed.
// use: index
// use: bytes
// use: mxfp4
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k | mxfp4
// use: matvec_x = float | int8
// use: int_dots = none | q8_0 | q4_k | q6_k

override lanes: u32 = 32;   // threads along a row
override groups: u32 = 1;   // teams of lanes
override rows: u32 = 1;     // rows a thread
override split: u32 = 1;    // threads that add up one row's partial sums; groups · rows · split threads at most
override vectors: bool = true;  // x may be read four at a time: its row length is a multiple of 4

struct Params {
  cols: u32,      // of W, and the length of x
  pieces: u32,    // of a row of W
  stride: u32,    // vec4<u32> from row to row of W
  rows: u32,      // of this part of W
  first_row: u32, // of this part, in y
  out_width: u32, // of a row of y
  bias: u32,      // 1: add bias
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

var<workgroup> partial: array<f32, lanes * groups * rows>;  // [row][lane]
var<workgroup> sums: array<f32, split * groups * rows>;     // [row][part]

// Four elements of row `column` of x from element `at`, zero past the end of the row.
fn x_quad(column: u32, at: u32) -> vec4<f32> {
  if (vectors) {
    if (at < params.cols) {
      return x[(column * params.cols + at) / 4u];
    }
    return vec4<f32>(0.0);
  }
  var v = vec4<f32>(0.0);
  for (var k = 0u; k < 4u; k++) {
    if (at + k < params.cols) {
      let i = column * params.cols + at + k;
      v[k] = x[i / 4u][i % 4u];
    }
  }
  return v;
}

fn x_piece(column: u32, piece: u32) -> Piece {
  let at = piece * 32u;
  return Piece(x_quad(column, at), x_quad(column, at + 4u), x_quad(column, at + 8u), x_quad(column, at + 12u),
               x_quad(column, at + 16u), x_quad(column, at + 20u), x_quad(column, at + 24u), x_quad(column, at + 28u));
}

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let lane = thread % lanes;
  let group = thread / lanes;
  let first = workgroup_index(id, count) * groups * rows;  // row of this workgroup
  let last = params.rows - 1u;
  let column = id.z;

  for (var i = 0u; i < rows; i++) {
    partial[(i * groups + group) * lanes + lane] = 0.0;
  }
  for (var piece = lane; piece < params.pieces; piece += lanes) {
    let held = hold(x_piece(column, piece));
    // Rows past the end read the last row again; nothing is stored for them.
    if (rows % 4u == 0u) {
      for (var i = 0u; i < rows; i += 4u) {
        let r = first + i * groups + group;
        let raw0 = load_raw(min(r, last) * params.stride, piece, params.pieces);
        let raw1 = load_raw(min(r + groups, last) * params.stride, piece, params.pieces);
        let raw2 = load_raw(min(r + 2u * groups, last) * params.stride, piece, params.pieces);
        let raw3 = load_raw(min(r + 3u * groups, last) * params.stride, piece, params.pieces);
        let at = (i * groups + group) * lanes + lane;
        partial[at] += held_dot(raw0, piece, held);
        partial[at + groups * lanes] += held_dot(raw1, piece, held);
        partial[at + 2u * groups * lanes] += held_dot(raw2, piece, held);
        partial[at + 3u * groups * lanes] += held_dot(raw3, piece, held);
      }
    } else if (rows == 2u) {
      let r = first + group;
      let raw0 = load_raw(min(r, last) * params.stride, piece, params.pieces);
      let raw1 = load_raw(min(r + groups, last) * params.stride, piece, params.pieces);
      partial[group * lanes + lane] += held_dot(raw0, piece, held);
      partial[(groups + group) * lanes + lane] += held_dot(raw1, piece, held);
    } else {
      let raw = load_raw(min(first + group, last) * params.stride, piece, params.pieces);
      partial[group * lanes + lane] += held_dot(raw, piece, held);
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
  for (var i = thread; i < kept; i += lanes * groups) {
    var sum = 0.0;
    for (var j = 0u; j < split; j++) {
      sum += sums[i * split + j];
    }
    let row = first + i;
    if (row < params.rows) {
      let at = params.first_row + row;
      if (params.bias == 1u) {
        sum += bias[at];
      }
      y[column * params.out_width + at] = sum;
    }
  }
}
