// x of a decode projection in workgroup memory, as floats: quad q of piece p at [q][p], so that neighbouring threads read
// neighbouring quads.
override most_pieces: u32 = 64;
var<workgroup> x_quads: array<vec4<f32>, 8u * most_pieces>;

// Elements 4·quad … 4·quad + 3; all quads of all pieces must be put, zeros past the end.
fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * most_pieces + (quad >> 3u)] = v;
}
// Between the last x_put() and the first x_piece(), in uniform control flow.
fn finish_x(thread: u32) {
  workgroupBarrier();
}

struct X {
  piece: Piece,
  low: f32,
  high: f32,
}
fn x_total(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}
fn x_piece(p: u32) -> X {
  let v = Piece(x_quads[p], x_quads[most_pieces + p], x_quads[2u * most_pieces + p], x_quads[3u * most_pieces + p],
                x_quads[4u * most_pieces + p], x_quads[5u * most_pieces + p], x_quads[6u * most_pieces + p],
                x_quads[7u * most_pieces + p]);
  return X(v, x_total((v.a + v.b) + (v.c + v.d)), x_total((v.e + v.f) + (v.g + v.h)));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw_dot(raw, piece, x.piece, x.low, x.high);
}
