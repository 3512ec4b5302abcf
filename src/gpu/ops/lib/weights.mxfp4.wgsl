// Rows of MXFP4: weight = scale · level. See weight_layout.h and mxfp4.wgsl, which a kernel uses before this. row:
// number of the row's first vec4<u32>; piece: of `pieces` in the row.
struct Raw {
  q: vec4<u32>,
  scale: f32,
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let pair = w2[(row + pieces) * 2u + piece / 8u];
  let four = select(pair.x, pair.y, (piece & 4u) == 4u);
  return Raw(w4[row + piece], level_scale(four, piece));
}
fn quants(q: vec4<u32>) -> Piece {
  let v = levels(q);
  return Piece(signed_bytes(v.low.x), signed_bytes(v.low.y), signed_bytes(v.low.z), signed_bytes(v.low.w),
               signed_bytes(v.high.x), signed_bytes(v.high.y), signed_bytes(v.high.z), signed_bytes(v.high.w));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw.q);
  return raw.scale * (dot_low(q, x) + dot_high(q, x));
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  return scale_piece(quants(raw.q), raw.scale, raw.scale);
}
