// Q4_K as bytes 0…15: weight = d · scale · q − dmin · min. See weight_layout.h. row: number of the row's first vec4<u32>.
struct Raw {
  q: vec4<u32>,
  header: vec4<u32>,
}

fn load_raw(second: bool, row: u32, piece: u32) -> Raw {
  return Raw(weight_quad(second, row + piece), weight_quad(second, row + params.pieces + piece / 8u));
}
fn raw_low(raw: Raw) -> vec4<u32> {
  return raw.q & vec4<u32>(0x0f0f0f0fu);
}
fn raw_high(raw: Raw) -> vec4<u32> {
  return (raw.q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
}
// (d · scale, −dmin · min)
fn raw_factors(raw: Raw, piece: u32) -> vec2<f32> {
  let j = piece & 7u;
  let scale = ((raw.header.y >> (4u * j)) & 15u) | (((raw.header.w >> (2u * j)) & 3u) << 4u);
  let low = ((raw.header.z >> (4u * j)) & 15u) | (((raw.header.w >> (16u + 2u * j)) & 3u) << 4u);
  return unpack2x16float(raw.header.x) * vec2<f32>(f32(scale), -f32(low));
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  return fma(r.s * x.s.x, sums_all(r, x), fma(r.t, vec4<f32>(x.s.y), sums));
}
