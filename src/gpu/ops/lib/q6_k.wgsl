// Q6_K: see lib/weights.wgsl.

// snippet: weights = q6_k
// Rows of Q6_K: weight = d · scale · (q − 32). See weight_layout.h. row: number of the row's first vec4<u32>; piece: of
// `pieces` in the row; a piece has two scales, for its first and last 16 weights.
struct Raw {
  low: vec4<u32>,
  high: vec2<u32>,
  factors: u32,  // two signed bytes, f16 d
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let pair = w2[row * 2u + pieces * 3u + piece / 2u];
  return Raw(w4[row + piece], w2[(row + pieces) * 2u + piece], select(pair.x, pair.y, (piece & 1u) == 1u));
}
fn six_bits(low: u32, high: u32, shift: u32) -> vec4<f32> {
  return unsigned_bytes((low & 0x0f0f0f0fu) | (((high >> shift) & 0x03030303u) << 4u));
}
fn quants(raw: Raw) -> Piece {
  let l = raw.low;
  let h = raw.high;
  return Piece(six_bits(l.x, h.x, 0u), six_bits(l.y, h.y, 0u), six_bits(l.z, h.x, 2u), six_bits(l.w, h.y, 2u),
               six_bits(l.x >> 4u, h.x, 4u), six_bits(l.y >> 4u, h.y, 4u), six_bits(l.z >> 4u, h.x, 6u),
               six_bits(l.w >> 4u, h.y, 6u));
}
fn factors(raw: Raw) -> vec2<f32> {
  return unpack2x16float(raw.factors).y * signed_bytes(raw.factors).xy;
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw);
  let f = factors(raw);
  return f.x * (dot_low(q, x) - 32.0 * x_low) + f.y * (dot_high(q, x) - 32.0 * x_high);
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  let q = quants(raw);
  let f = factors(raw);
  let m = vec4<f32>(32.0);
  return scale_piece(Piece(q.a - m, q.b - m, q.c - m, q.d - m, q.e - m, q.f - m, q.g - m, q.h - m), f.x, f.y);
}

// snippet: int_dots = q6_k
// sum + Σ of 16 products, in the order in which a device with an accumulating product needs nothing else.
fn sixteen_products(sum: i32, w: vec4<u32>, v: vec4<u32>) -> i32 {
  return sum + dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y) + dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w);
}
// A sum that began with kExact, less than 2^22 in size, as a float: no conversion, but a subtraction.
const kExact = 0x4b400000;
fn exact(sum: i32) -> f32 {
  return bitcast<f32>(sum) - 12582912.0;
}
// Words of 6-bit quants, 0 … 63: the −32 is taken off through the sums of x.
fn raw_int_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let pairs = vec4<u32>(0x30303030u);
  let first = (raw.low & nibbles) | (vec4<u32>(raw.high << vec2<u32>(4u), raw.high << vec2<u32>(2u)) & pairs);
  let last = ((raw.low >> vec4<u32>(4u)) & nibbles) | (vec4<u32>(raw.high, raw.high >> vec2<u32>(2u)) & pairs);
  let f = factors(raw);
  return fma(f.y * x.scale, exact(sixteen_products(kExact - 32 * x.high_sum, last, x.high)),
             fma(f.x * x.scale, exact(sixteen_products(kExact - 32 * x.low_sum, first, x.low)), sum));
}

// snippet: matmul_int8 = q6_k
// Q6_K as bytes −32…31: weight = d · scale · q, one scale for the first 16 weights of a piece and one for the last. See
// weight_layout.h. row: number of the row's first vec4<u32>.
struct Raw {
  low: vec4<u32>,
  high: vec2<u32>,
  factors: u32,  // two signed bytes, f16 d
}

fn word(row: u32, i: u32) -> u32 {
  return w4[row + i / 4u][i % 4u];
}
fn load_raw(row: u32, piece: u32) -> Raw {
  let high = w4[row + params.pieces + piece / 2u];
  return Raw(w4[row + piece], select(high.xy, high.zw, (piece & 1u) == 1u), word(row, params.pieces * 6u + piece));
}
// q − 32 without a borrow between bytes.
fn six_bits(low: vec4<u32>, high: vec4<u32>) -> vec4<u32> {
  let q = (low & vec4<u32>(0x0f0f0f0fu)) | ((high & vec4<u32>(0x03030303u)) << vec4<u32>(4u));
  return (q + vec4<u32>(0x60606060u)) ^ vec4<u32>(0x80808080u);
}
fn raw_low(raw: Raw) -> vec4<u32> {
  return six_bits(raw.low, vec4<u32>(raw.high, raw.high >> vec2<u32>(2u)));
}
fn raw_high(raw: Raw) -> vec4<u32> {
  return six_bits(raw.low >> vec4<u32>(4u), vec4<u32>(raw.high >> vec2<u32>(4u), raw.high >> vec2<u32>(6u)));
}
// d · scale of the first 16 weights and of the last.
fn raw_factors(raw: Raw, piece: u32) -> vec2<f32> {
  let scales = bitcast<vec2<i32>>(vec2<u32>(raw.factors << 24u, raw.factors << 16u)) >> vec2<u32>(24u);
  return unpack2x16float(raw.factors).y * vec2<f32>(scales);
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  return fma(vec4<f32>(x.s.x), fma(r.s, sums_low(r, x), r.t * sums_high(r, x)), sums);
}
