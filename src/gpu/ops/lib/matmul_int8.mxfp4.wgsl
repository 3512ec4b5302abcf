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
