// One query head a workgroup.
alias Heads = f32;
const kHeads: u32 = 1;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads;
}

fn make_heads(x: array<f32, 4>) -> Heads {
  return x[0];
}
