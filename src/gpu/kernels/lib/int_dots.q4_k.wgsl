fn raw_int_dot(raw: Raw, piece: u32, x: X) -> f32 {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let f = factors(raw.header, piece);
  let sum = x_dot4(raw.q & nibbles, x.low) + x_dot4((raw.q >> vec4<u32>(4u)) & nibbles, x.high);
  return f.x * x.scale * sum - f.y * (x.low_sum + x.high_sum);
}
