// A thread's piece of x as it is, with the sums of its halves, which quantised weights need for their minimum.
struct Held {
  v: Piece,
  low: f32,
  high: f32,
}

fn quad_sum(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}
fn hold(v: Piece) -> Held {
  return Held(v, quad_sum((v.a + v.b) + (v.c + v.d)), quad_sum((v.e + v.f) + (v.g + v.h)));
}
fn held_dot(raw: Raw, piece: u32, x: Held) -> f32 {
  return raw_dot(raw, piece, x.v, x.low, x.high);
}
