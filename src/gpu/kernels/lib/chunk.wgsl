// Eight dims of a cached value in a vec4<u32>: 16-bit integers times a power of two, the step. The integers' lowest
// bits, put together, are the step's exponent as f32 has it; they count as parts of the integers too, so that reading
// needs no mask. Against f16 in as many bytes, the dims that count most have three bits more.
//   word w: dims 2w (low half, holds bit w of the exponent) and 2w + 1 (high half, bit 4 + w)
fn chunk_step(chunk: vec4<u32>) -> f32 {
  let bits = (chunk & vec4<u32>(0x10001u)) << vec4<u32>(0u, 1u, 2u, 3u);
  let both = bits.x | bits.y | bits.z | bits.w;
  return bitcast<f32>((both << 23u) | ((both & 0xf0000u) << 11u));
}

// Two dims, in steps.
fn chunk_dims(word: u32) -> vec2<f32> {
  return vec2<f32>(f32(bitcast<i32>(word << 16u) >> 16u), f32(bitcast<i32>(word) >> 16u));
}

// What is not finite stays so: its step is infinite.
fn pack_chunk(first: vec4<f32>, second: vec4<f32>) -> vec4<u32> {
  let sizes = max(abs(first), abs(second));
  let most = max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
  // 2^14 steps are at most `most`, so 2^15 are more.
  let top = bitcast<u32>(most) >> 23u;
  let exponent = select(max(top, 15u) - 14u, 255u, top >= 255u);
  let half = bitcast<f32>((253u - min(exponent, 252u)) << 23u);  // 1 / (2 · step)
  let low_bits = (vec4<u32>(exponent) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
  let high_bits = (vec4<u32>(exponent) >> vec4<u32>(4u, 5u, 6u, 7u)) & vec4<u32>(1u);
  let low = pack_dims(vec4<f32>(first.xz, second.xz) * half, low_bits);
  let high = pack_dims(vec4<f32>(first.yw, second.yw) * half, high_bits);
  return (low & vec4<u32>(0xffffu)) | (high << vec4<u32>(16u));
}

// v in double steps: the nearest of the integers that end in the given bit.
fn pack_dims(v: vec4<f32>, bits: vec4<u32>) -> vec4<u32> {
  let doubles = clamp(round(v - 0.5 * vec4<f32>(bits)), vec4<f32>(-16384.0), vec4<f32>(16383.0));
  return bitcast<vec4<u32>>(vec4<i32>(doubles) << vec4<u32>(1u)) | bits;
}
