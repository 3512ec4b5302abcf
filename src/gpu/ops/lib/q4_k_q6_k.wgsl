// Q4_K and Q6_K in one matrix: see lib/weights.wgsl.

// snippet: weights = q4_k_q6_k
// Rows of Q4_K, and behind them in the same buffer, from params.second_at on, rows of Q6_K: weights.q4_k and
// weights.q6_k side by side, for projections of one x that are stored in different types.
struct Raw {
  q: vec4<u32>,     // low nibbles
  high: vec2<u32>,  // Q6_K: the upper bits; Q4_K: zeros
  pair: vec2<u32>,  // the factors of this piece and of a neighbour
  six: bool,
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let six = row >= params.second_at;
  let plane = row * 2u + pieces * select(2u, 3u, six);
  var high = vec2<u32>(0u);
  if (six) {
    high = w2[(row + pieces) * 2u + piece];
  }
  return Raw(w4[row + piece], high, w2[plane + piece / 2u], six);
}
fn own_factors(raw: Raw, piece: u32) -> u32 {
  return select(raw.pair.x, raw.pair.y, (piece & 1u) == 1u);
}
// The sixteen bytes of the first or the last sixteen weights: nibbles, with Q6_K's upper bits above them.
fn first_half(raw: Raw) -> vec4<u32> {
  let high = vec4<u32>(raw.high << vec2<u32>(4u), raw.high << vec2<u32>(2u));
  return (raw.q & vec4<u32>(0x0f0f0f0fu)) | (high & vec4<u32>(0x30303030u));
}
fn last_half(raw: Raw) -> vec4<u32> {
  let high = vec4<u32>(raw.high, raw.high >> vec2<u32>(2u));
  return ((raw.q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu)) | (high & vec4<u32>(0x30303030u));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let l = first_half(raw);
  let h = last_half(raw);
  let q = Piece(unsigned_bytes(l.x), unsigned_bytes(l.y), unsigned_bytes(l.z), unsigned_bytes(l.w), unsigned_bytes(h.x),
                unsigned_bytes(h.y), unsigned_bytes(h.z), unsigned_bytes(h.w));
  let own = own_factors(raw, piece);
  if (raw.six) {
    let f = unpack2x16float(own).y * signed_bytes(own).xy;
    return f.x * (dot_low(q, x) - 32.0 * x_low) + f.y * (dot_high(q, x) - 32.0 * x_high);
  }
  let f = vec2<f32>(unpack2x16float(raw.pair.x).x, unpack2x16float(raw.pair.y).x) * unsigned_bytes(own).zw;
  return f.x * (dot_low(q, x) + dot_high(q, x)) - f.y * (x_low + x_high);
}

// snippet: int_dots = q4_k_q6_k
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
  let six = select(0, 32, raw.six);
  let first = sixteen_products(kExact - six * x.low_sum, first_half(raw), x.low);
  let own = own_factors(raw, piece);
  if (raw.six) {
    let f = unpack2x16float(own).y * signed_bytes(own).xy;
    let last = sixteen_products(kExact - 32 * x.high_sum, last_half(raw), x.high);
    return fma(f.y * x.scale, exact(last), fma(f.x * x.scale, exact(first), sum));
  }
  let f = vec2<f32>(unpack2x16float(raw.pair.x).x, unpack2x16float(raw.pair.y).x) * unsigned_bytes(own).zw;
  let both = sixteen_products(first, last_half(raw), x.high);
  return fma(f.x * x.scale, exact(both), fma(-f.y, x.total, sum));
}
