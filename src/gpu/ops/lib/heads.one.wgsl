// One query head a workgroup.
alias Heads = f32;
const kHeads: u32 = 1;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads;
}

fn make_heads(x0: f32, x1: f32, x2: f32, x3: f32) -> Heads {
  return x0;
}
