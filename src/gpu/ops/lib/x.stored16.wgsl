// x of an experts' projection as experts_out.int16 left it, in the binding `x`: five vec4<u32> a piece. Expert by expert;
// slot_weight() is an expert's share in the token.
override most_pieces: u32 = 64;

fn x_piece(p: u32) -> X {
  return X(x[p * 5u], x[p * 5u + 1u], x[p * 5u + 2u], x[p * 5u + 3u],
           bitcast<f32>(x[p * 5u + 4u].x) * slot_weight(p));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int16_dot(raw, x);
}
