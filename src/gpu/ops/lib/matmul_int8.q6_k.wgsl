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
