fn raw_int_dot(raw: Raw, piece: u32, x: X) -> f32 {
  let first = x_dot4(first_half(raw), x.low);
  let last = x_dot4(last_half(raw), x.high);
  let own = own_factors(raw, piece);
  if (raw.six) {
    let scales = unpack4xI8(own);
    return unpack2x16float(own).y * x.scale *
           f32(scales.x * (first - 32 * x.low_sum) + scales.y * (last - 32 * x.high_sum));
  }
  let d = unpack2x16float(raw.pair.x).x * f32(i32((own >> 16u) & 255u) * (first + last));
  return x.scale * (d - unpack2x16float(raw.pair.y).x * f32(i32(own >> 24u) * (x.low_sum + x.high_sum)));
}
