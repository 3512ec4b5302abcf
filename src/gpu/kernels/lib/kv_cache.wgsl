// One layer's keys and values, eight dims to a vec4<u32> ("chunk"). Position p lives in ring slot p % capacity.
//   keys   [kv_heads][chunks][capacity]  f16; neighbouring threads take neighbouring keys, each its whole dot product
//   values [kv_heads][capacity][chunks]  lib/chunk.wgsl; neighbouring threads take neighbouring dims of one key
// As f16, the values were two thirds of the whole backend's error; the keys, one third, are faster to read as f16.
// Keys come first in the buffer; indices count vec4<u32>.
fn key_index(kv_head: u32, chunk: u32, slot: u32, chunks: u32, capacity: u32) -> u32 {
  return (kv_head * chunks + chunk) * capacity + slot;
}

fn value_index(kv_head: u32, slot: u32, chunk: u32, kv_heads: u32, chunks: u32, capacity: u32) -> u32 {
  return ((kv_heads + kv_head) * capacity + slot) * chunks + chunk;
}
