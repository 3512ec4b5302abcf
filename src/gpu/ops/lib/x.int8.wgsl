requires packed_4x8_integer_dot_product;

// x of a decode projection in workgroup memory, as int8 with one scale a piece of 32. Halves the instructions of a dot
// product and more; used with quantised weights only. The error of an element is at most scale / 2 = max|piece| / 254.
override most_pieces: u32 = 64;
var<workgroup> x_quads: array<vec4<f32>, 8u * most_pieces>;  // [quad][piece], as it came
var<workgroup> x_words: array<vec4<u32>, 2u * most_pieces>;  // [half][piece]: 16 elements each
var<workgroup> x_scale: array<f32, most_pieces>;
var<workgroup> x_sums: array<vec2<i32>, most_pieces>;        // Σ of the first half, of the last

fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * most_pieces + (quad >> 3u)] = v;
}

fn x_word(q: vec4<f32>, inverse: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(q * inverse)));
}
fn x_highest(q: vec4<f32>) -> f32 {
  let m = abs(q);
  return max(max(m.x, m.y), max(m.z, m.w));
}
const kOnes = 0x01010101u;
fn x_words_sum(v: vec4<u32>) -> i32 {
  return (dot4I8Packed(v.x, kOnes) + dot4I8Packed(v.y, kOnes)) + (dot4I8Packed(v.z, kOnes) + dot4I8Packed(v.w, kOnes));
}

fn finish_x(thread: u32) {
  workgroupBarrier();
  for (var p = thread; p < params.pieces; p += lanes * groups) {
    var highest = 0.0;
    for (var k = 0u; k < 8u; k++) {
      highest = max(highest, x_highest(x_quads[k * most_pieces + p]));
    }
    let scale = highest / 127.0;
    let inverse = select(0.0, 1.0 / scale, scale > 0.0);
    let low = vec4<u32>(x_word(x_quads[p], inverse), x_word(x_quads[most_pieces + p], inverse),
                        x_word(x_quads[2u * most_pieces + p], inverse), x_word(x_quads[3u * most_pieces + p], inverse));
    let high = vec4<u32>(x_word(x_quads[4u * most_pieces + p], inverse), x_word(x_quads[5u * most_pieces + p], inverse),
                         x_word(x_quads[6u * most_pieces + p], inverse), x_word(x_quads[7u * most_pieces + p], inverse));
    x_words[p] = low;
    x_words[most_pieces + p] = high;
    x_scale[p] = scale;
    x_sums[p] = vec2<i32>(x_words_sum(low), x_words_sum(high));
  }
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
  return X(x_words[p], x_words[most_pieces + p], x_scale[p], x_sums[p].x, x_sums[p].y);
}
fn x_dot4(w: vec4<u32>, v: vec4<u32>) -> i32 {
  return (dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y)) + (dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w));
}
fn x_dot(raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_dot(raw, piece, x);
}
