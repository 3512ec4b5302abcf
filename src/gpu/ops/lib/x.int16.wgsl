requires packed_4x8_integer_dot_product;

// x of a decode projection in workgroup memory as 16-bit integers with one scale a piece of 32, each integer as two
// signed bytes, 256 · high + low: two integer dot products where int8 takes one, but the error of an element is at most
// max|piece| / 65024. For weights of 4 bits and coarse scales, whose rows are worth more than int8.
override most_pieces: u32 = 64;
// [eight][piece]: the quads of a piece as they came, then 32 high bytes, 32 low bytes, and the scale.
var<workgroup> x_quads: array<vec4<u32>, 8u * most_pieces>;

// Elements 4·quad … 4·quad + 3; all quads of all pieces must be put, zeros past the end.
fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * most_pieces + (quad >> 3u)] = bitcast<vec4<u32>>(v);
}

// Between the last x_put() and the first x_piece(), in uniform control flow. A thread turns a whole piece in place.
fn finish_x(thread: u32) {
  workgroupBarrier();
  for (var p = thread; p < params.pieces; p += lanes * groups) {
    var quads: array<vec4<f32>, 8>;
    for (var k = 0u; k < 8u; k++) {
      quads[k] = bitcast<vec4<f32>>(x_quads[k * most_pieces + p]);
    }
    let piece = sixteen_bits(quads);
    x_quads[p] = piece.high_low;
    x_quads[most_pieces + p] = piece.high_high;
    x_quads[2u * most_pieces + p] = piece.low_low;
    x_quads[3u * most_pieces + p] = piece.low_high;
    x_quads[4u * most_pieces + p] = vec4<u32>(bitcast<u32>(piece.scale), 0u, 0u, 0u);
  }
  workgroupBarrier();
}

fn x_piece(p: u32) -> X {
  return X(x_quads[p], x_quads[most_pieces + p], x_quads[2u * most_pieces + p], x_quads[3u * most_pieces + p],
           bitcast<f32>(x_quads[4u * most_pieces + p].x));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int16_dot(raw, x);
}
