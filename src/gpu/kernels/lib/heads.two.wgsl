// Two query heads that share keys and values.
alias Heads = vec2<f32>;
const kHeads: u32 = 2;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads[i];
}

fn make_heads(x: array<f32, 4>) -> Heads {
  return vec2<f32>(x[0], x[1]);
}
