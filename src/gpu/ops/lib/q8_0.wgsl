// Q8_0: see lib/weights.wgsl.

// snippet: weights = q8_0
// Rows of Q8_0: weight = scale · q. See weight_layout.h. row: number of the row's first vec4<u32>; piece: of `pieces`.
struct Raw {
  a: vec4<u32>,
  b: vec4<u32>,
  scale: f32,
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let i = row + piece * 2u;
  let pairs = w2[row * 2u + pieces * 4u + piece / 4u];
  let scales = unpack2x16float(select(pairs.x, pairs.y, (piece & 2u) == 2u));
  return Raw(w4[i], w4[i + 1u], select(scales.x, scales.y, (piece & 1u) == 1u));
}
fn quants(raw: Raw) -> Piece {
  return Piece(signed_bytes(raw.a.x), signed_bytes(raw.a.y), signed_bytes(raw.a.z), signed_bytes(raw.a.w),
               signed_bytes(raw.b.x), signed_bytes(raw.b.y), signed_bytes(raw.b.z), signed_bytes(raw.b.w));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw);
  return raw.scale * (dot_low(q, x) + dot_high(q, x));
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  return scale_piece(quants(raw), raw.scale, raw.scale);
}

// snippet: int_dots = q8_0
// sum + Σ of 16 products, in the order in which a device with an accumulating product needs nothing else.
fn sixteen_products(sum: i32, w: vec4<u32>, v: vec4<u32>) -> i32 {
  return sum + dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y) + dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w);
}
// A sum that began with kExact, less than 2^22 in size, as a float: no conversion, but a subtraction.
const kExact = 0x4b400000;
fn exact(sum: i32) -> f32 {
  return bitcast<f32>(sum) - 12582912.0;
}
fn raw_int_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return fma(raw.scale * x.scale, exact(sixteen_products(sixteen_products(kExact, raw.a, x.low), raw.b, x.high)), sum);
}

// snippet: matmul_int8 = q8_0
// Q8_0: weight = scale · q. See weight_layout.h. row: number of the row's first vec4<u32>.
struct Raw {
  low: vec4<u32>,
  high: vec4<u32>,
  scales: u32,
}

fn load_raw(row: u32, piece: u32) -> Raw {
  let scale = params.pieces * 8u + piece / 2u;
  return Raw(w4[row + piece * 2u], w4[row + piece * 2u + 1u], w4[row + scale / 4u][scale % 4u]);
}
fn raw_low(raw: Raw) -> vec4<u32> {
  return raw.low;
}
fn raw_high(raw: Raw) -> vec4<u32> {
  return raw.high;
}
// (scale, unused)
fn raw_factors(raw: Raw, piece: u32) -> vec2<f32> {
  let pair = unpack2x16float(raw.scales);
  return vec2<f32>(select(pair.x, pair.y, (piece & 1u) == 1u), 0.0);
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  return fma(r.s * x.s.x, sums_all(r, x), sums);
}
