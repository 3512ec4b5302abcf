// Philox 4×32 with ten rounds, as in src/engine/random.h: number `counter` of a seed.
fn multiply_wide(a: u32, b: u32) -> vec2<u32> {  // (low, high)
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let b0 = b & 0xffffu;
  let b1 = b >> 16u;
  let middle = a1 * b0 + ((a0 * b0) >> 16u);
  let carry = a0 * b1 + (middle & 0xffffu);
  return vec2<u32>(a * b, a1 * b1 + (middle >> 16u) + (carry >> 16u));
}

// Uniform in [0, 1), 24 bits.
fn uniform_number(seed: vec2<u32>, counter: u32) -> f32 {
  var x = vec4<u32>(counter, 0u, 0u, 0u);
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let a = multiply_wide(0xD2511F53u, x.x);
    let b = multiply_wide(0xCD9E8D57u, x.z);
    x = vec4<u32>(b.y ^ x.y ^ key.x, b.x, a.y ^ x.w ^ key.y, a.x);
    key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return f32(x.x >> 8u) * 0x1p-24f;
}
