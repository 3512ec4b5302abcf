enable subgroups;
requires packed_4x8_integer_dot_product;
diagnostic(off, subgroup_uniformity);

// As x.int8, made by all threads at once: the eight threads that put the quads of a piece are neighbours in a subgroup of
// at least eight, and agree on its scale by shuffles. Quads must be put by threads of the same number modulo eight.
override most_pieces: u32 = 64;
var<workgroup> x_words: array<vec4<u32>, 2u * most_pieces>;  // [half][piece]: 16 elements each
var<workgroup> x_scale: array<f32, most_pieces>;
var<workgroup> x_sums: array<i32, 2u * most_pieces>;         // [half][piece]

const kOnes = 0x01010101u;

fn x_put(quad: u32, v: vec4<f32>) {
  let m = abs(v);
  var highest = max(max(m.x, m.y), max(m.z, m.w));
  highest = max(highest, subgroupShuffleXor(highest, 1u));
  highest = max(highest, subgroupShuffleXor(highest, 2u));
  highest = max(highest, subgroupShuffleXor(highest, 4u));
  let scale = highest / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let word = pack4xI8(vec4<i32>(round(v * inverse)));
  var sum = dot4I8Packed(word, kOnes);
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  let piece = quad >> 3u;
  let half = (quad >> 2u) & 1u;
  x_words[half * most_pieces + piece][quad & 3u] = word;
  if ((quad & 3u) == 0u) {
    x_sums[half * most_pieces + piece] = sum;
  }
  if ((quad & 7u) == 0u) {
    x_scale[piece] = scale;
  }
}
fn finish_x(thread: u32) {
  workgroupBarrier();
}

struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,
  high_sum: i32,
}
fn x_piece(p: u32) -> X {
  return X(x_words[p], x_words[most_pieces + p], x_scale[p], x_sums[p], x_sums[most_pieces + p]);
}
fn x_dot4(w: vec4<u32>, v: vec4<u32>) -> i32 {
  return (dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y)) + (dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_dot(raw, piece, x);
}
