fn raw_int_dot(raw: Raw, piece: u32, x: X) -> f32 {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let sum = x_dot4(raw.q & nibbles, x.low) + x_dot4((raw.q >> vec4<u32>(4u)) & nibbles, x.high);
  let scales = vec2<i32>(piece_scales(raw, piece));
  let d = block_factors(raw);
  return x.scale * (d.x * f32(scales.x * sum) - d.y * f32(scales.y * (x.low_sum + x.high_sum)));
}
