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
