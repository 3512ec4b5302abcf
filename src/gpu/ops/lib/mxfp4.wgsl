// Codes of e2m1, two a byte as they lie in memory, as twice their values: the integers 0, ±1, ±2, ±3, ±4, ±6, ±8, ±12. All
// eight codes of a word are worked out at once, a nibble each; there is no −0 among them (weight_layout.h).
struct Levels {
  low: vec4<u32>,   // of the low nibbles, as signed bytes
  high: vec4<u32>,  // of the high ones
}

fn levels(q: vec4<u32>) -> Levels {
  let ones = vec4<u32>(0x11111111u);
  let by_one = q >> vec4<u32>(1u);
  let by_two = q >> vec4<u32>(2u);
  // 4 … 7 stand for 4, 6, 8, 12: their low two bits count twice, and both together two more.
  let first = q & by_two & ones;
  let second = q & by_one & vec4<u32>(0x22222222u);
  let size = (q & vec4<u32>(0x77777777u)) + first + second + ((first & by_one) << vec4<u32>(1u));
  let minus = (q >> vec4<u32>(3u)) & ones;
  let fill = minus * 15u;
  let value = (size ^ fill) + minus;  // modulo 16
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  return Levels((value & nibbles) | ((fill << vec4<u32>(4u)) & ~nibbles),
                ((value >> vec4<u32>(4u)) & nibbles) | (fill & ~nibbles));
}
// Half the scale, because the levels are doubled. four: the exponents of four pieces, a byte each.
fn level_scale(four: u32, piece: u32) -> f32 {
  return bitcast<f32>(((four << (24u - (piece & 3u) * 8u)) >> 1u) & 0x7f800000u);
}
