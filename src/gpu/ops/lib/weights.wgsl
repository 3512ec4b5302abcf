// Weights of any type, as kernels see them. A type's file has, for rows packed as in weight_layout.h:
//   weights      load_raw(row, piece, pieces) -> Raw, the loads and nothing else; raw_dot(raw, piece, x, x_low, x_high);
//                raw_values(raw, piece) -> Piece
//   int_dots     raw_int_add(sum, raw, piece, x): sum + their dot product with an x of int8; where a type has none, its x stays float
//   matmul_int8  the same for the tiles of matmul_int8.wgsl, which bind w4 only
// Here are the plain types; lib/q8_0.wgsl, lib/q4_k.wgsl, lib/q6_k.wgsl, lib/mxfp4.wgsl have the others.

// snippet: bytes
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

// snippet: weights = f32
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

// snippet: weights = f16
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

// snippet: weights = bf16
// Rows of BF16. See weight_layout.h. row: number of the row's first vec4<u32>; piece: of `pieces` in the row.
struct Raw {
  a: vec4<u32>,
  b: vec4<u32>,
  c: vec4<u32>,
  d: vec4<u32>,
}

fn quad(p: vec2<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(p.x << 16u, p.x & 0xffff0000u, p.y << 16u, p.y & 0xffff0000u));
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

// snippet: int_dots = none
// Float activations need no integer dot product.
