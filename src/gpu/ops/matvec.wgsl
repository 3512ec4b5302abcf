// W · x for one column or a few, whatever their length.

// snippet: matvec_x = float
// A thread's piece of x as it is, with the sums of its halves, which quantised weights need for their minimum.
struct Held {
  v: Piece,
  low: f32,
  high: f32,
}

fn quad_sum(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}
fn hold(v: Piece) -> Held {
  return Held(v, quad_sum((v.a + v.b) + (v.c + v.d)), quad_sum((v.e + v.f) + (v.g + v.h)));
}
fn held_dot(raw: Raw, piece: u32, x: Held) -> f32 {
  return raw_dot(raw, piece, x.v, x.low, x.high);
}

// snippet: matvec_x = int8
requires packed_4x8_integer_dot_product;

// A thread's piece of x as int8 with one scale: a third of the instructions of the float dot product. Made once and used
// for all rows the thread goes down. The error of an element is at most scale / 2 = max|piece| / 254.
// lib/<type>.wgsl has raw_int_add().
struct X {
  low: vec4<u32>,   // 16 signed bytes
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,     // Σ of the bytes
  high_sum: i32,
  total: f32,  // of all, scaled
}
alias Held = X;

const kOnes = 0x01010101u;

// Of bits, where NaN is above every number: a piece that holds one has no number for a scale.
fn highest(v: vec4<u32>) -> f32 {
  return bitcast<f32>(max(max(v.x, v.y), max(v.z, v.w)));
}
fn abs_bits(v: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(abs(v));
}
fn to_bytes(v: vec4<f32>) -> u32 {
  return pack4xI8(vec4<i32>(round(v)));
}
fn hold(v: Piece) -> Held {
  let most = highest(max(max(max(abs_bits(v.a), abs_bits(v.b)), max(abs_bits(v.c), abs_bits(v.d))),
                         max(max(abs_bits(v.e), abs_bits(v.f)), max(abs_bits(v.g), abs_bits(v.h)))));
  let scale = most / 127.0;
  let inverse = select(0.0, 127.0 / most, most > 0.0);
  let low = vec4<u32>(to_bytes(v.a * inverse), to_bytes(v.b * inverse), to_bytes(v.c * inverse), to_bytes(v.d * inverse));
  let high = vec4<u32>(to_bytes(v.e * inverse), to_bytes(v.f * inverse), to_bytes(v.g * inverse), to_bytes(v.h * inverse));
  let ones = vec4<u32>(kOnes);
  let low_sum = sixteen_products(0, low, ones);
  let high_sum = sixteen_products(0, high, ones);
  return X(low, high, scale, low_sum, high_sum, scale * f32(low_sum + high_sum));
}
fn held_dot(raw: Raw, piece: u32, x: Held) -> f32 {
  return raw_int_add(0.0, raw, piece, x);
}

// kernel: matvec
// y = W · x (+ bias) for one column, or a few: column z of the grid is a row of x. Computes from the packed bytes.
//
// A thread owns one piece of 32 consecutive columns of W and keeps that piece of x in registers while it goes down
// `rows` rows: one or two 16-byte loads per row, four rows in flight. `lanes` threads cover a row's pieces (in several
// turns if there are more), `groups` such teams work on different rows. Partial sums meet in workgroup memory at the
// end, so no subgroup is needed and the order of the sum is fixed.
// use: index
// use: bytes
// use: mxfp4
// use: weights = *
// use: matvec_x = float | int8
// use: int_dots = *

override lanes: u32 = 32;   // threads along a row
override groups: u32 = 1;   // teams of lanes
override rows: u32 = 1;     // rows per thread
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
