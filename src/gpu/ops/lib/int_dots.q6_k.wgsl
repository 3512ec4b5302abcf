// Words of 6-bit quants, 0 … 63: the −32 is taken off through the sums of x.
fn raw_int_dot(raw: Raw, piece: u32, x: X) -> f32 {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let pairs = vec4<u32>(0x30303030u);
  let first = (raw.low & nibbles) | (vec4<u32>(raw.high << vec2<u32>(4u), raw.high << vec2<u32>(2u)) & pairs);
  let last = ((raw.low >> vec4<u32>(4u)) & nibbles) | (vec4<u32>(raw.high, raw.high >> vec2<u32>(2u)) & pairs);
  let scales = unpack4xI8(raw.factors);
  let sum = scales.x * (x_dot4(first, x.low) - 32 * x.low_sum) + scales.y * (x_dot4(last, x.high) - 32 * x.high_sum);
  return unpack2x16float(raw.factors).y * x.scale * f32(sum);
}
