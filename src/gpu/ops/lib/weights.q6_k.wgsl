// Rows of Q6_K: weight = d · scale · (q − 32). See weight_layout.h. row: number of the row's first vec4<u32>; piece: of
// `pieces` in the row; a piece has two scales, for its first and last 16 weights.
struct Raw {
  low: vec4<u32>,
  high: vec2<u32>,
  factors: u32,  // two signed bytes, f16 d
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  let pair = w2[row * 2u + pieces * 3u + piece / 2u];
  return Raw(w4[row + piece], w2[(row + pieces) * 2u + piece], select(pair.x, pair.y, (piece & 1u) == 1u));
}
fn six_bits(low: u32, high: u32, shift: u32) -> vec4<f32> {
  return unsigned_bytes((low & 0x0f0f0f0fu) | (((high >> shift) & 0x03030303u) << 4u));
}
fn quants(raw: Raw) -> Piece {
  let l = raw.low;
  let h = raw.high;
  return Piece(six_bits(l.x, h.x, 0u), six_bits(l.y, h.y, 0u), six_bits(l.z, h.x, 2u), six_bits(l.w, h.y, 2u),
               six_bits(l.x >> 4u, h.x, 4u), six_bits(l.y >> 4u, h.y, 4u), six_bits(l.z >> 4u, h.x, 6u),
               six_bits(l.w >> 4u, h.y, 6u));
}
fn factors(raw: Raw) -> vec2<f32> {
  return unpack2x16float(raw.factors).y * signed_bytes(raw.factors).xy;
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw);
  let f = factors(raw);
  return f.x * (dot_low(q, x) - 32.0 * x_low) + f.y * (dot_high(q, x) - 32.0 * x_high);
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  let q = quants(raw);
  let f = factors(raw);
  let m = vec4<f32>(32.0);
  return scale_piece(Piece(q.a - m, q.b - m, q.c - m, q.d - m, q.e - m, q.f - m, q.g - m, q.h - m), f.x, f.y);
}
