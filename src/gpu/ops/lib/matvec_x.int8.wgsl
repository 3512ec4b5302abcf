requires packed_4x8_integer_dot_product;

// A thread's piece of x as int8 with one scale: a third of the instructions of the float dot product. Made once and used
// for all rows the thread goes down. The error of an element is at most scale / 2 = max|piece| / 254.
// lib/int_dots.<type>.wgsl has raw_int_dot().
struct X {
  low: vec4<u32>,   // 16 signed bytes
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,     // Σ of the bytes
  high_sum: i32,
}
alias Held = X;

const kOnes = 0x01010101u;

fn x_dot4(w: vec4<u32>, v: vec4<u32>) -> i32 {
  return (dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y)) + (dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w));
}
fn highest(v: vec4<f32>) -> f32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}
fn to_bytes(v: vec4<f32>) -> u32 {
  return pack4xI8(vec4<i32>(round(v)));
}
fn hold(v: Piece) -> Held {
  let most = highest(max(max(max(abs(v.a), abs(v.b)), max(abs(v.c), abs(v.d))),
                         max(max(abs(v.e), abs(v.f)), max(abs(v.g), abs(v.h)))));
  let scale = most / 127.0;
  let inverse = select(0.0, 127.0 / most, most > 0.0);
  let low = vec4<u32>(to_bytes(v.a * inverse), to_bytes(v.b * inverse), to_bytes(v.c * inverse), to_bytes(v.d * inverse));
  let high = vec4<u32>(to_bytes(v.e * inverse), to_bytes(v.f * inverse), to_bytes(v.g * inverse), to_bytes(v.h * inverse));
  let ones = vec4<u32>(kOnes);
  return X(low, high, scale, x_dot4(low, ones), x_dot4(high, ones));
}
fn held_dot(raw: Raw, piece: u32, x: Held) -> f32 {
  return raw_int_dot(raw, piece, x);
}
