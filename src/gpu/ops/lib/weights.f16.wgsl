// Rows of F16. See weight_layout.h. row: number of the row's first vec4<u32>; piece: of `pieces` in the row.
struct Raw {
  a: vec4<u32>,
  b: vec4<u32>,
  c: vec4<u32>,
  d: vec4<u32>,
}

fn quad(p: vec2<u32>) -> vec4<f32> {
  let low = unpack2x16float(p.x);
  let high = unpack2x16float(p.y);
  return vec4<f32>(low.x, low.y, high.x, high.y);
}
fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let i = row + piece * 4u;
  return Raw(w4[i], w4[i + 1u], w4[i + 2u], w4[i + 3u]);
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  return Piece(quad(raw.a.xy), quad(raw.a.zw), quad(raw.b.xy), quad(raw.b.zw), quad(raw.c.xy), quad(raw.c.zw),
               quad(raw.d.xy), quad(raw.d.zw));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let v = raw_values(raw, piece);
  return dot_low(v, x) + dot_high(v, x);
}
