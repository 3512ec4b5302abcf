// Four query heads that share keys and values.
alias Heads = vec4<f32>;
const kHeads: u32 = 4;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads[i];
}

fn make_heads(x: array<f32, 4>) -> Heads {
  return vec4<f32>(x[0], x[1], x[2], x[3]);
}
