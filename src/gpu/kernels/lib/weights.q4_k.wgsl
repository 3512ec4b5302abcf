// Rows of Q4_K: weight = d · scale · q − dmin · min. See weight_layout.h. row: number of the row's first vec4<u32>;
// piece: of `pieces` in the row; a piece is one of the 8 sub-blocks of its block.
struct Raw {
  q: vec4<u32>,
  header: vec4<u32>,
}

fn load_raw(row: u32, piece: u32, pieces: u32) -> Raw {
  return Raw(w4[row + piece], w4[row + pieces + piece / 8u]);
}
// (d · scale, dmin · min)
fn factors(header: vec4<u32>, piece: u32) -> vec2<f32> {
  let j = piece & 7u;
  let scale = ((header.y >> (4u * j)) & 15u) | (((header.w >> (2u * j)) & 3u) << 4u);
  let low = ((header.z >> (4u * j)) & 15u) | (((header.w >> (16u + 2u * j)) & 3u) << 4u);
  return unpack2x16float(header.x) * vec2<f32>(f32(scale), f32(low));
}
fn quants(q: vec4<u32>) -> Piece {
  return Piece(low_nibbles(q.x), low_nibbles(q.y), low_nibbles(q.z), low_nibbles(q.w), high_nibbles(q.x),
               high_nibbles(q.y), high_nibbles(q.z), high_nibbles(q.w));
}
fn raw_dot(raw: Raw, piece: u32, x: Piece, x_low: f32, x_high: f32) -> f32 {
  let q = quants(raw.q);
  let f = factors(raw.header, piece);
  return f.x * (dot_low(q, x) + dot_high(q, x)) - f.y * (x_low + x_high);
}
fn raw_values(raw: Raw, piece: u32) -> Piece {
  let q = quants(raw.q);
  let f = factors(raw.header, piece);
  let m = vec4<f32>(f.y);
  return Piece(q.a * f.x - m, q.b * f.x - m, q.c * f.x - m, q.d * f.x - m, q.e * f.x - m, q.f * f.x - m,
               q.g * f.x - m, q.h * f.x - m);
}
