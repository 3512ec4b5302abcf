// Four e2m1 codes, one a byte, as 12 + twice their value, one a byte: twice the values 0, .5, 1, 1.5, 2, 3, 4, 6 are the
// integers 0, 1, 2, 3, 4, 6, 8, 12, and with 12 added no byte is negative, so that bytes do not carry into each other.
const kLevelZero = 12;

fn levels(codes: vec4<u32>) -> vec4<u32> {
  let ones = vec4<u32>(0x01010101u);
  let upper = (codes >> vec4<u32>(2u)) & ones;  // 4 … 7 lie further apart: they stand for 4, 6, 8, 12
  let twice = codes & (codes >> vec4<u32>(1u)) & upper;
  let size = (codes & vec4<u32>(0x07070707u)) + (codes & (upper * 3u)) + (twice << vec4<u32>(1u));
  let minus = ((codes >> vec4<u32>(3u)) & ones) * 15u;
  return vec4<u32>(0x0c0c0c0cu) + size - ((size & minus) << vec4<u32>(1u));
}
fn low_levels(q: vec4<u32>) -> vec4<u32> {
  return levels(q & vec4<u32>(0x0f0f0f0fu));
}
fn high_levels(q: vec4<u32>) -> vec4<u32> {
  return levels((q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu));
}
// 2^(e − 128): half the e8m0 scale 2^(e − 127), because the levels are doubled. Below 2^-126 it is zero.
fn level_scale(e: u32) -> f32 {
  return bitcast<f32>((max(e, 1u) - 1u) << 23u);
}
