// The rotation of pair i at a position, (cos, sin) times the rope's magnitude: the product of a coarse and a fine turn
// (src/gpu/ops/rope_tables.h). `rope` holds fine [256][half], then coarse [⌈context / 256⌉][half].
fn rope_turn(position: u32, i: u32, half: u32) -> vec2<f32> {
  let fine = rope[(position & 255u) * half + i];
  let coarse = rope[(256u + (position >> 8u)) * half + i];
  return vec2<f32>(coarse.x * fine.x - coarse.y * fine.y, coarse.y * fine.x + coarse.x * fine.y);
}
