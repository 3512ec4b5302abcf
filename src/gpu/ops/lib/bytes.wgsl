// The four bytes of a word, lowest first, as floats.
fn unsigned_bytes(w: u32) -> vec4<f32> {
  return vec4<f32>((vec4<u32>(w) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
}
fn signed_bytes(w: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(w) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
// Its low nibbles and its high ones.
fn low_nibbles(w: u32) -> vec4<f32> {
  return unsigned_bytes(w & 0x0f0f0f0fu);
}
fn high_nibbles(w: u32) -> vec4<f32> {
  return unsigned_bytes((w >> 4u) & 0x0f0f0f0fu);
}

// 32 consecutive values, four at a time.
struct Piece {
  a: vec4<f32>,
  b: vec4<f32>,
  c: vec4<f32>,
  d: vec4<f32>,
  e: vec4<f32>,
  f: vec4<f32>,
  g: vec4<f32>,
  h: vec4<f32>,
}

// Σ of products of the first 16 values, and of the last 16.
fn dot_low(p: Piece, x: Piece) -> f32 {
  return (dot(p.a, x.a) + dot(p.b, x.b)) + (dot(p.c, x.c) + dot(p.d, x.d));
}
fn dot_high(p: Piece, x: Piece) -> f32 {
  return (dot(p.e, x.e) + dot(p.f, x.f)) + (dot(p.g, x.g) + dot(p.h, x.h));
}
fn scale_piece(p: Piece, s: f32, t: f32) -> Piece {
  return Piece(p.a * s, p.b * s, p.c * s, p.d * s, p.e * t, p.f * t, p.g * t, p.h * t);
}
