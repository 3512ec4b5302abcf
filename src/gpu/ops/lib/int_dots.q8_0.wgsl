fn raw_int_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw.scale * x.scale * f32(x_dot4(raw.a, x.low) + x_dot4(raw.b, x.high));
}
