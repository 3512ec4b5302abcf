// Rows of Q8_0: weight = scale · q. See weight_layout.h. row: number of the row's first vec4<u32>; piece: of `pieces`.
struct Raw {
  a: vec4<u32>,
  b: vec4<u32>,
  scale: f32,
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let i = row + piece * 2u;
  let pairs = w2[row * 2u + pieces * 4u + piece / 4u];
  let scales = unpack2x16float(select(pairs.x, pairs.y, (piece & 2u) == 2u));
  return Raw(w4[i], w4[i + 1u], select(scales.x, scales.y, (piece & 1u) == 1u));
}
fn quants(raw: Raw) -> Piece {
  return Piece(signed_bytes(raw.a.x), signed_bytes(raw.a.y), signed_bytes(raw.a.z), signed_bytes(raw.a.w),
               signed_bytes(raw.b.x), signed_bytes(raw.b.y), signed_bytes(raw.b.z), signed_bytes(raw.b.w));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw);
  return raw.scale * (dot_low(q, x) + dot_high(q, x));
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  return scale_piece(quants(raw), raw.scale, raw.scale);
}
