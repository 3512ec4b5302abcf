// x of an experts' projection as floats (their bits), in the binding `x`: expert by expert, params.cols each, a multiple of
// 4. slot_weight() is an expert's share in the token.
override most_pieces: u32 = 64;

struct X {
  piece: Piece,
  weight: f32,
}
fn stored_quad(slot: u32, at: u32) -> vec4<f32> {
  if (at < params.cols) {
    return bitcast<vec4<f32>>(x[(slot * params.cols + at) / 4u]);
  }
  return vec4<f32>(0.0);
}
fn x_piece(p: u32) -> X {
  let slot = p / own_pieces;
  let at = p % own_pieces * 32u;
  return X(Piece(stored_quad(slot, at), stored_quad(slot, at + 4u), stored_quad(slot, at + 8u), stored_quad(slot, at + 12u),
                 stored_quad(slot, at + 16u), stored_quad(slot, at + 20u), stored_quad(slot, at + 24u),
                 stored_quad(slot, at + 28u)), slot_weight(p));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return x.weight * raw_dot(raw, piece, x.piece, 0.0, 0.0);
}
