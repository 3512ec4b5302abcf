// Q4_K: see lib/weights.wgsl.

// snippet: weights = q4_k
// Rows of Q4_K: weight = d · scale · q − dmin · min. See weight_layout.h. row: number of the row's first vec4<u32>;
// piece: of `pieces` in the row; a piece is one of the 8 sub-blocks of its block.
struct Raw {
  q: vec4<u32>,
  pair: vec2<u32>,  // the factors of this piece and of a neighbour
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  return Raw(w4[row + piece], w2[(row + pieces) * 2u + piece / 2u]);
}
// (scale, min)
fn piece_scales(raw: Raw, piece: u32) -> vec2<u32> {
  let own = select(raw.pair.x, raw.pair.y, (piece & 1u) == 1u);
  return vec2<u32>((own >> 16u) & 255u, own >> 24u);
}
// (d, dmin)
fn block_factors(raw: Raw) -> vec2<f32> {
  return vec2<f32>(unpack2x16float(raw.pair.x).x, unpack2x16float(raw.pair.y).x);
}
// (d · scale, dmin · min)
fn factors(raw: Raw, piece: u32) -> vec2<f32> {
  return block_factors(raw) * vec2<f32>(piece_scales(raw, piece));
}
fn quants(q: vec4<u32>) -> Piece {
  return Piece(low_nibbles(q.x), low_nibbles(q.y), low_nibbles(q.z), low_nibbles(q.w), high_nibbles(q.x),
               high_nibbles(q.y), high_nibbles(q.z), high_nibbles(q.w));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw.q);
  let f = factors(raw, piece);
  return f.x * (dot_low(q, x) + dot_high(q, x)) - f.y * (x_low + x_high);
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  let q = quants(raw.q);
  let f = factors(raw, piece);
  let m = vec4<f32>(f.y);
  return Piece(q.a * f.x - m, q.b * f.x - m, q.c * f.x - m, q.d * f.x - m, q.e * f.x - m, q.f * f.x - m,
               q.g * f.x - m, q.h * f.x - m);
}

// snippet: int_dots = q4_k
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
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let products = sixteen_products(sixteen_products(kExact, raw.q & nibbles, x.low),
                                  (raw.q >> vec4<u32>(4u)) & nibbles, x.high);
  let f = factors(raw, piece);
  return fma(f.x * x.scale, exact(products), fma(-f.y, x.total, sum));
}

// snippet: matmul_int8 = q4_k
// Q4_K as bytes 0…15: weight = d · scale · q − dmin · min. See weight_layout.h. row: number of the row's first vec4<u32>.
struct Raw {
  q: vec4<u32>,
  pair: vec2<u32>,  // the factors of this piece and of a neighbour
}

fn load_raw(row: u32, piece: u32) -> Raw {
  let pairs = w4[row + params.pieces + piece / 4u];
  return Raw(w4[row + piece], select(pairs.xy, pairs.zw, (piece & 2u) == 2u));
}
fn raw_low(raw: Raw) -> vec4<u32> {
  return raw.q & vec4<u32>(0x0f0f0f0fu);
}
fn raw_high(raw: Raw) -> vec4<u32> {
  return (raw.q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
}
// (d · scale, −dmin · min)
fn raw_factors(raw: Raw, piece: u32) -> vec2<f32> {
  let own = select(raw.pair.x, raw.pair.y, (piece & 1u) == 1u);
  return vec2<f32>(unpack2x16float(raw.pair.x).x, unpack2x16float(raw.pair.y).x) *
         vec2<f32>(f32((own >> 16u) & 255u), -f32(own >> 24u));
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  return fma(r.s * x.s.x, sums_all(r, x), fma(r.t, vec4<f32>(x.s.y), sums));
}
