// Two f16 in a word, rounded to nearest. pack2x16float may round as it likes, software drivers cut off; here it gets what
// is exact already. f16 ends at 65504; a value past it is held there rather than left to the device.
fn halves(v: vec2<f32>) -> u32 {
  let bits = bitcast<vec2<u32>>(clamp(v, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
  let odd = (bits >> vec2<u32>(13u)) & vec2<u32>(1u);
  return pack2x16float(bitcast<vec2<f32>>((bits + vec2<u32>(0xfffu) + odd) & vec2<u32>(0xffffe000u)));
}
