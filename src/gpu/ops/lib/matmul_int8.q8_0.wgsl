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
