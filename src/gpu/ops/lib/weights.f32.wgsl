// Rows of F32. See weight_layout.h. row: number of the row's first vec4<u32>; piece: of `pieces` in the row.
struct Raw {
  v: Piece,
}

fn f32_quad(i: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(w4[i]);
}
fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let i = row + piece * 8u;
  return Raw(Piece(f32_quad(i), f32_quad(i + 1u), f32_quad(i + 2u), f32_quad(i + 3u), f32_quad(i + 4u),
                   f32_quad(i + 5u), f32_quad(i + 6u), f32_quad(i + 7u)));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  return dot_low(raw.v, x) + dot_high(raw.v, x);
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  return raw.v;
}
