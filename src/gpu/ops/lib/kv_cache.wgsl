// One layer's keys and values, eight dims to a vec4<u32> ("chunk"). Position p lives in ring slot p % capacity.
//   keys   [kv_heads][chunks][capacity]  f16; neighbouring threads take neighbouring keys, each its whole dot product
//   values [kv_heads][capacity][chunks]  i16, in steps; neighbouring threads take neighbouring dims of one key
//   steps  [kv_heads][capacity]          f32, of the values
// As f16, the values were two thirds of the whole backend's error; keys gain less, and f16 needs no step.
// Keys come first in the buffer; indices count vec4<u32>, but those of steps count words.
fn key_index(kv_head: u32, chunk: u32, slot: u32, chunks: u32, capacity: u32) -> u32 {
  return (kv_head * chunks + chunk) * capacity + slot;
}

fn value_index(kv_head: u32, slot: u32, chunk: u32, kv_heads: u32, chunks: u32, capacity: u32) -> u32 {
  return ((kv_heads + kv_head) * capacity + slot) * chunks + chunk;
}

fn step_index(kv_head: u32, slot: u32, kv_heads: u32, chunks: u32, capacity: u32) -> u32 {
  return 2u * kv_heads * capacity * chunks * 4u + kv_head * capacity + slot;
}

// Eight dims of a value in steps, where `inverse` is one over the step.
fn pack_value(first: vec4<f32>, second: vec4<f32>, inverse: f32) -> vec4<u32> {
  let low = bitcast<vec4<u32>>(vec4<i32>(round(vec4<f32>(first.xz, second.xz) * inverse)));
  let high = bitcast<vec4<u32>>(vec4<i32>(round(vec4<f32>(first.yw, second.yw) * inverse)));
  return (low & vec4<u32>(0xffffu)) | (high << vec4<u32>(16u));
}

// The size of the largest dim, as bits: these have the order of the sizes, and a NaN's are above all others.
fn largest(first: vec4<f32>, second: vec4<f32>) -> u32 {
  let sizes = max(bitcast<vec4<u32>>(abs(first)), bitcast<vec4<u32>>(abs(second)));
  return max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
}

const kSteps: f32 = 32767.0;  // to the largest dim of a value
const kInfinity: u32 = 0x7f800000u;

// Of the largest dim, as bits. A dim that is no number makes a step that is none, so that the whole value is none.
fn step_of(most: u32) -> u32 {
  return select(bitcast<u32>(bitcast<f32>(most) / kSteps), most, most >= kInfinity);
}

fn inverse_step(most: u32) -> f32 {
  return select(0.0, kSteps / bitcast<f32>(most), most > 0u && most < kInfinity);
}

// Two dims of a value, in steps.
fn value_dims(word: u32) -> vec2<f32> {
  return vec2<f32>(f32(bitcast<i32>(word << 16u) >> 16u), f32(bitcast<i32>(word) >> 16u));
}
