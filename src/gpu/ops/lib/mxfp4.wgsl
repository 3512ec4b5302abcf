// MXFP4: see lib/weights.wgsl. Its decode products take x as 16-bit integers.

// snippet: mxfp4
// Codes of e2m1, two per byte as they lie in memory, as twice their values: the integers 0, ±1, ±2, ±3, ±4, ±6, ±8, ±12.
// All eight codes of a word are worked out at once, a nibble each; there is no −0 among them (weight_layout.h).
struct Levels {
  low: vec4<u32>,   // of the low nibbles, as signed bytes
  high: vec4<u32>,  // of the high ones
}

fn levels(q: vec4<u32>) -> Levels {
  let ones = vec4<u32>(0x11111111u);
  let by_one = q >> vec4<u32>(1u);
  let by_two = q >> vec4<u32>(2u);
  // 4 … 7 stand for 4, 6, 8, 12: their low two bits count twice, and both together two more.
  let first = q & by_two & ones;
  let second = q & by_one & vec4<u32>(0x22222222u);
  let size = (q & vec4<u32>(0x77777777u)) + first + second + ((first & by_one) << vec4<u32>(1u));
  let minus = (q >> vec4<u32>(3u)) & ones;
  let fill = minus * 15u;
  let value = (size ^ fill) + minus;  // modulo 16
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  return Levels((value & nibbles) | ((fill << vec4<u32>(4u)) & ~nibbles),
                ((value >> vec4<u32>(4u)) & nibbles) | (fill & ~nibbles));
}
// Half the scale, because the levels are doubled. four: the exponents of four pieces, a byte each.
fn level_scale(four: u32, piece: u32) -> f32 {
  return bitcast<f32>(((four << (24u - (piece & 3u) * 8u)) >> 1u) & 0x7f800000u);
}

// snippet: weights = mxfp4
// Rows of MXFP4: weight = scale · level. See weight_layout.h and mxfp4.wgsl, which a kernel uses before this. row:
// number of the row's first vec4<u32>; piece: of `pieces` in the row.
struct Raw {
  q: vec4<u32>,
  scale: f32,
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let pair = w2[(row + pieces) * 2u + piece / 8u];
  let four = select(pair.x, pair.y, (piece & 4u) == 4u);
  return Raw(w4[row + piece], level_scale(four, piece));
}
fn quants(q: vec4<u32>) -> Piece {
  let v = levels(q);
  return Piece(signed_bytes(v.low.x), signed_bytes(v.low.y), signed_bytes(v.low.z), signed_bytes(v.low.w),
               signed_bytes(v.high.x), signed_bytes(v.high.y), signed_bytes(v.high.z), signed_bytes(v.high.w));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw.q);
  return raw.scale * (dot_low(q, x) + dot_high(q, x));
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  return scale_piece(quants(raw.q), raw.scale, raw.scale);
}

// snippet: matmul_int8 = mxfp4
// MXFP4 as signed bytes: weight = scale · level, see mxfp4.wgsl and weight_layout.h. row: number of the row's first
// vec4<u32>.
struct Raw {
  q: vec4<u32>,
  scale: f32,
}

fn load_raw(row: u32, piece: u32) -> Raw {
  let sixteen = w4[row + params.pieces + piece / 16u];
  let four = sixteen[(piece / 4u) & 3u];
  return Raw(w4[row + piece], level_scale(four, piece));
}
fn raw_low(raw: Raw) -> vec4<u32> {
  return levels(raw.q).low;
}
fn raw_high(raw: Raw) -> vec4<u32> {
  return levels(raw.q).high;
}
// (scale, unused)
fn raw_factors(raw: Raw, piece: u32) -> vec2<f32> {
  return vec2<f32>(raw.scale, 0.0);
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  return fma(r.s * x.s.x, sums_all(r, x), sums);
}

// snippet: int16 = none
// Float activations need no integers.

// snippet: int16 = mxfp4
requires packed_4x8_integer_dot_product;

// 32 values as 16-bit integers 256 · high + low with one scale, the bytes apart, and their product with MXFP4 weights.
struct X {
  high_low: vec4<u32>,   // the high bytes of the first 16 elements
  high_high: vec4<u32>,  // of the last 16
  low_low: vec4<u32>,
  low_high: vec4<u32>,
  scale: f32,
}

const kSixteenMost = 32512.0;  // 127 · 256: both bytes stay within int8

struct Sixteen {
  high: u32,
  low: u32,
}
fn sixteen(v: vec4<f32>) -> Sixteen {
  let q = vec4<i32>(round(v));
  let high = (q + 128) >> vec4<u32>(8u);
  return Sixteen(pack4xI8(high), pack4xI8(q - high * 256));
}
fn sixteen_abs(v: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(abs(v));
}
fn sixteen_bits(v: array<vec4<f32>, 8>) -> X {
  // Of bits, where NaN is above every number: pieces that hold one have no number for a scale.
  let most = max(max(max(sixteen_abs(v[0]), sixteen_abs(v[1])), max(sixteen_abs(v[2]), sixteen_abs(v[3]))),
                 max(max(sixteen_abs(v[4]), sixteen_abs(v[5])), max(sixteen_abs(v[6]), sixteen_abs(v[7]))));
  let peak = bitcast<f32>(max(max(most.x, most.y), max(most.z, most.w)));
  let least = 1e-30;  // pieces below it become zeros: their reciprocal could overflow
  let inverse = select(kSixteenMost / max(peak, least), 0.0, peak < least);
  let a = sixteen(v[0] * inverse);
  let b = sixteen(v[1] * inverse);
  let c = sixteen(v[2] * inverse);
  let d = sixteen(v[3] * inverse);
  let e = sixteen(v[4] * inverse);
  let f = sixteen(v[5] * inverse);
  let g = sixteen(v[6] * inverse);
  let h = sixteen(v[7] * inverse);
  let high_low = vec4<u32>(a.high, b.high, c.high, d.high);
  let high_high = vec4<u32>(e.high, f.high, g.high, h.high);
  let low_low = vec4<u32>(a.low, b.low, c.low, d.low);
  let low_high = vec4<u32>(e.low, f.low, g.low, h.low);
  return X(high_low, high_high, low_low, low_high, peak / kSixteenMost);
}

// sum + Σ of 16 products, in the order in which a device with an accumulating product needs nothing else.
fn add_bytes(sum: i32, w: vec4<u32>, v: vec4<u32>) -> i32 {
  return sum + dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y) + dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w);
}
// The sum is exact: at most 32 · 12 · 32512, which a float holds, too.
fn raw_int16_dot(raw: Raw, x: X) -> f32 {
  let v = levels(raw.q);
  let high = add_bytes(add_bytes(0, v.low, x.high_low), v.high, x.high_high);
  let low = add_bytes(add_bytes(0, v.low, x.low_low), v.high, x.low_high);
  return raw.scale * x.scale * f32(256 * high + low);
}

// snippet: x = int16
requires packed_4x8_integer_dot_product;

// x of a decode projection in workgroup memory as 16-bit integers with one scale per piece of 32, each integer as two
// signed bytes, 256 · high + low: two integer dot products where int8 takes one, but the error of an element is at most
// max|piece| / 65024. For weights of 4 bits and coarse scales, whose rows are worth more than int8.
override max_pieces: u32 = 64;
// [eight][piece]: the quads of a piece as they came, then 32 high bytes, 32 low bytes, and the scale.
var<workgroup> x_quads: array<vec4<u32>, 8u * max_pieces>;

// Elements 4·quad … 4·quad + 3; all quads of all pieces must be put, zeros past the end.
fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * max_pieces + (quad >> 3u)] = bitcast<vec4<u32>>(v);
}

// Between the last x_put() and the first x_piece(), in uniform control flow. A thread turns a whole piece in place.
fn prepare_x(thread: u32) {
  workgroupBarrier();
  for (var p = thread; p < params.pieces; p += lanes * groups) {
    var quads: array<vec4<f32>, 8>;
    for (var k = 0u; k < 8u; k++) {
      quads[k] = bitcast<vec4<f32>>(x_quads[k * max_pieces + p]);
    }
    let piece = sixteen_bits(quads);
    x_quads[p] = piece.high_low;
    x_quads[max_pieces + p] = piece.high_high;
    x_quads[2u * max_pieces + p] = piece.low_low;
    x_quads[3u * max_pieces + p] = piece.low_high;
    x_quads[4u * max_pieces + p] = vec4<u32>(bitcast<u32>(piece.scale), 0u, 0u, 0u);
  }
  workgroupBarrier();
}

fn x_piece(p: u32) -> X {
  return X(x_quads[p], x_quads[max_pieces + p], x_quads[2u * max_pieces + p], x_quads[3u * max_pieces + p],
           bitcast<f32>(x_quads[4u * max_pieces + p].x));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return sum + raw_int16_dot(raw, x);
}

// snippet: x = stored16
// x of an experts' projection as `up_out = int16` left it, in the binding `x`: five vec4<u32> per piece. Expert by expert;
// rank_weight() is the router's weight of a piece's expert.
override max_pieces: u32 = 64;

fn x_piece(p: u32) -> X {
  let at = column * params.between + p * 5u;
  return X(x[at], x[at + 1u], x[at + 2u], x[at + 3u], bitcast<f32>(x[at + 4u].x) * rank_weight(p));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return sum + raw_int16_dot(raw, x);
}
