requires packed_4x8_integer_dot_product;

// x of a decode projection as lib/project_out.int8.wgsl left it, in the binding `x`: nothing to make ready.
override most_pieces: u32 = 64;

struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,
  high_sum: i32,
}
fn x_piece(p: u32) -> X {
  let rest = x[p * 3u + 2u];
  return X(x[p * 3u], x[p * 3u + 1u], bitcast<f32>(rest.x), bitcast<i32>(rest.y), bitcast<i32>(rest.z));
}
fn x_dot4(w: vec4<u32>, v: vec4<u32>) -> i32 {
  return (dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y)) + (dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_dot(raw, piece, x);
}
