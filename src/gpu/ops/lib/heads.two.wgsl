// Two query heads that share keys and values.
alias Heads = vec2<f32>;
const kHeads: u32 = 2;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads[i];
}

fn make_heads(x0: f32, x1: f32, x2: f32, x3: f32) -> Heads {
  return vec2<f32>(x0, x1);
}
