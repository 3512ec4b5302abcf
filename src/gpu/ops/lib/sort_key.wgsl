// Logits as unsigned numbers in the same order, so that no NaN or infinity is ever compared as a float: a larger key is
// a larger logit, -0 and 0 are equal, and NaN is key 0, below everything.
fn sort_key(bits: u32) -> u32 {
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return 0u;
  }
  if (bits == 0x80000000u) {
    return 0x80000000u;
  }
  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn key_bits(key: u32) -> u32 {
  return select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u);
}

// (key, id): the larger key wins; between equal ones the lower id.
fn better(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x > b.x || (a.x == b.x && a.y < b.y);
}
