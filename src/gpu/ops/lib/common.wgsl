// What kernels of every kind use.

// snippet: index
// Numbers workgroups of a grid that linear_grid() spread over x and y.
fn workgroup_index(id: vec3<u32>, count: vec3<u32>) -> u32 {
  return id.x + id.y * count.x;
}

// snippet: state
// What changes with every token, so that one recording serves all of them (DecodeState in attention.h). The kernel that
// picks a token advances it.
struct State {
  position: u32,  // tokens already in the context: the current token's position
  token: u32,     // the current token
  draw: u32,      // number of the random draw
  produced: u32,  // tokens written to out_tokens
}

// snippet: paged_state
// The same, and the pages that hold the sequence's keys and values: by group of layers, then by position / kPage
// (ops/lib/kv_cache.wgsl).
struct State {
  position: u32,
  token: u32,
  draw: u32,
  produced: u32,
  pages: array<u32>,
}

// snippet: pack_f16
// Two f16 in a word, rounded to nearest. pack2x16float may round as it likes, software drivers cut off; here it gets what
// is exact already. f16 ends at 65504; a value past it is held there rather than left to the device.
fn pack_f16(v: vec2<f32>) -> u32 {
  let bits = bitcast<vec2<u32>>(clamp(v, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
  let odd = (bits >> vec2<u32>(13u)) & vec2<u32>(1u);
  return pack2x16float(bitcast<vec2<f32>>((bits + vec2<u32>(0xfffu) + odd) & vec2<u32>(0xffffe000u)));
}
