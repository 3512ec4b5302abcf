// Words of 6-bit quants, 0 … 63: the −32 is taken off through the sums of x.
fn raw_int_dot(raw: Raw, piece: u32, x: X) -> f32 {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let pairs = vec4<u32>(0x03030303u);
  let high = raw.high.xyxy;
  let low_quants = (raw.low & nibbles) | (((high >> vec4<u32>(0u, 0u, 2u, 2u)) & pairs) << vec4<u32>(4u));
  let high_quants = ((raw.low >> vec4<u32>(4u)) & nibbles) | (((high >> vec4<u32>(4u, 4u, 6u, 6u)) & pairs) << vec4<u32>(4u));
  let f = factors(raw);
  return f.x * (x.scale * x_dot4(low_quants, x.low) - 32.0 * x.low_sum) +
         f.y * (x.scale * x_dot4(high_quants, x.high) - 32.0 * x.high_sum);
}
