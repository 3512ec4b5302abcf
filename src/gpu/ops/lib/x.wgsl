// x of a decode projection, in workgroup memory or as the dispatch before left it.

// snippet: x = float
// x of a decode projection in workgroup memory, as floats: quad q of piece p at [q][p], so that neighbouring threads read
// neighbouring quads.
override max_pieces: u32 = 64;
var<workgroup> x_quads: array<vec4<f32>, 8u * max_pieces>;

// Elements 4·quad … 4·quad + 3; all quads of all pieces must be put, zeros past the end.
fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * max_pieces + (quad >> 3u)] = v;
}
// Between the last x_put() and the first x_piece(), in uniform control flow.
fn prepare_x(thread: u32) {
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
  let v = Piece(x_quads[p], x_quads[max_pieces + p], x_quads[2u * max_pieces + p], x_quads[3u * max_pieces + p],
                x_quads[4u * max_pieces + p], x_quads[5u * max_pieces + p], x_quads[6u * max_pieces + p],
                x_quads[7u * max_pieces + p]);
  return X(v, x_total((v.a + v.b) + (v.c + v.d)), x_total((v.e + v.f) + (v.g + v.h)));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return sum + raw_dot(raw, piece, x.piece, x.low, x.high);
}

// snippet: x = int8
requires packed_4x8_integer_dot_product;

// x of a decode projection in workgroup memory, as int8 with one scale per piece of 32. Halves the instructions of a dot
// product and more; used with quantised weights only. The error of an element is at most scale / 2 = max|piece| / 254.
override max_pieces: u32 = 64;
var<workgroup> x_quads: array<vec4<f32>, 8u * max_pieces>;  // [quad][piece], as it came
var<workgroup> x_words: array<vec4<u32>, 2u * max_pieces>;  // [half][piece]: 16 elements each
var<workgroup> x_scale: array<f32, max_pieces>;
var<workgroup> x_sums: array<vec2<i32>, max_pieces>;        // Σ of the first half, of the last
var<workgroup> x_totals: array<f32, max_pieces>;            // Σ of all, scaled

fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * max_pieces + (quad >> 3u)] = v;
}

fn x_word(q: vec4<f32>, inverse: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(q * inverse)));
}
// Of bits: NaN is above every number there, so that a piece that holds one has no number for a scale.
fn x_highest(q: vec4<f32>) -> u32 {
  let m = bitcast<vec4<u32>>(abs(q));
  return max(max(m.x, m.y), max(m.z, m.w));
}
const kOnes = 0x01010101u;
fn x_words_sum(v: vec4<u32>) -> i32 {
  return (dot4I8Packed(v.x, kOnes) + dot4I8Packed(v.y, kOnes)) + (dot4I8Packed(v.z, kOnes) + dot4I8Packed(v.w, kOnes));
}

fn prepare_x(thread: u32) {
  workgroupBarrier();
  for (var p = thread; p < params.pieces; p += lanes * groups) {
    var highest = 0u;
    for (var k = 0u; k < 8u; k++) {
      highest = max(highest, x_highest(x_quads[k * max_pieces + p]));
    }
    let scale = bitcast<f32>(highest) / 127.0;
    let inverse = select(0.0, 1.0 / scale, scale > 0.0);
    let low = vec4<u32>(x_word(x_quads[p], inverse), x_word(x_quads[max_pieces + p], inverse),
                        x_word(x_quads[2u * max_pieces + p], inverse), x_word(x_quads[3u * max_pieces + p], inverse));
    let high = vec4<u32>(x_word(x_quads[4u * max_pieces + p], inverse), x_word(x_quads[5u * max_pieces + p], inverse),
                         x_word(x_quads[6u * max_pieces + p], inverse), x_word(x_quads[7u * max_pieces + p], inverse));
    x_words[p] = low;
    x_words[max_pieces + p] = high;
    x_scale[p] = scale;
    let sums = vec2<i32>(x_words_sum(low), x_words_sum(high));
    x_sums[p] = sums;
    x_totals[p] = scale * f32(sums.x + sums.y);
  }
  workgroupBarrier();
}

struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,
  high_sum: i32,
  total: f32,  // of all, scaled
}
fn x_piece(p: u32) -> X {
  return X(x_words[p], x_words[max_pieces + p], x_scale[p], x_sums[p].x, x_sums[p].y, x_totals[p]);
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_add(sum, raw, piece, x);
}

// snippet: x = int8_wide
enable subgroups;
requires packed_4x8_integer_dot_product;
diagnostic(off, subgroup_uniformity);

// As int8, made by all threads at once: the eight threads that put the quads of a piece are neighbours in a subgroup of
// at least eight, and agree on its scale by shuffles. Quads must be put by threads of the same number modulo eight.
override max_pieces: u32 = 64;
var<workgroup> x_words: array<vec4<u32>, 2u * max_pieces>;  // [half][piece]: 16 elements each
var<workgroup> x_scale: array<f32, max_pieces>;
var<workgroup> x_sums: array<i32, 2u * max_pieces>;         // [half][piece]
var<workgroup> x_totals: array<f32, max_pieces>;

const kOnes = 0x01010101u;

fn x_put(quad: u32, v: vec4<f32>) {
  let m = bitcast<vec4<u32>>(abs(v));  // NaN is the highest
  var highest = max(max(m.x, m.y), max(m.z, m.w));
  highest = max(highest, subgroupShuffleXor(highest, 1u));
  highest = max(highest, subgroupShuffleXor(highest, 2u));
  highest = max(highest, subgroupShuffleXor(highest, 4u));
  let scale = bitcast<f32>(highest) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let word = pack4xI8(vec4<i32>(round(v * inverse)));
  var sum = dot4I8Packed(word, kOnes);
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  let piece = quad >> 3u;
  let half = (quad >> 2u) & 1u;
  x_words[half * max_pieces + piece][quad & 3u] = word;
  if ((quad & 3u) == 0u) {
    x_sums[half * max_pieces + piece] = sum;
  }
  let other_half = subgroupShuffleXor(sum, 4u);
  if ((quad & 7u) == 0u) {
    x_scale[piece] = scale;
    x_totals[piece] = scale * f32(sum + other_half);
  }
}
fn prepare_x(thread: u32) {
  workgroupBarrier();
}

struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,
  high_sum: i32,
  total: f32,  // of all, scaled
}
fn x_piece(p: u32) -> X {
  return X(x_words[p], x_words[max_pieces + p], x_scale[p], x_sums[p], x_sums[max_pieces + p], x_totals[p]);
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_add(sum, raw, piece, x);
}

// snippet: x = stored
requires packed_4x8_integer_dot_product;

// x of a decode projection as lib/project_out.wgsl left it, in the binding `x`: nothing to make ready.
override max_pieces: u32 = 64;

struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,
  high_sum: i32,
  total: f32,  // of all, scaled
}
fn x_piece(p: u32) -> X {
  let rest = x[p * 3u + 2u];
  return X(x[p * 3u], x[p * 3u + 1u], bitcast<f32>(rest.x), bitcast<i32>(rest.y), bitcast<i32>(rest.z),
           bitcast<f32>(rest.w));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_add(sum, raw, piece, x);
}

// snippet: x = stored_float
// x of an experts' projection as floats (their bits), in the binding `x`: expert by expert, params.cols each, a multiple of
// 4. rank_weight() is the router's weight of a piece's expert.
override max_pieces: u32 = 64;

struct X {
  piece: Piece,
  weight: f32,
}
fn stored_quad(rank: u32, at: u32) -> vec4<f32> {
  if (at < params.cols) {
    return bitcast<vec4<f32>>(x[column * params.between + (rank * params.cols + at) / 4u]);
  }
  return vec4<f32>(0.0);
}
fn x_piece(p: u32) -> X {
  let rank = p / own_pieces;
  let at = p % own_pieces * 32u;
  return X(Piece(stored_quad(rank, at), stored_quad(rank, at + 4u), stored_quad(rank, at + 8u), stored_quad(rank, at + 12u),
                 stored_quad(rank, at + 16u), stored_quad(rank, at + 20u), stored_quad(rank, at + 24u),
                 stored_quad(rank, at + 28u)), rank_weight(p));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return sum + x.weight * raw_dot(raw, piece, x.piece, 0.0, 0.0);
}

// snippet: x_piece = none
// Floats need no packing.

// snippet: x_piece = int8
requires packed_4x8_integer_dot_product;

// 32 values on their way to project_batch, by the formula of x = int8. A column has three planes of `pieces` vec4<u32>:
// the first 16 bytes of each piece, the last, and its scale, the sums of both and their scaled total.
fn x_word(q: vec4<f32>, inverse: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(q * inverse)));
}
fn x_highest(q: vec4<f32>) -> u32 {
  let m = bitcast<vec4<u32>>(abs(q));  // NaN is the highest
  return max(max(m.x, m.y), max(m.z, m.w));
}
fn x_words_sum(v: vec4<u32>) -> i32 {
  let ones = 0x01010101u;
  return (dot4I8Packed(v.x, ones) + dot4I8Packed(v.y, ones)) + (dot4I8Packed(v.z, ones) + dot4I8Packed(v.w, ones));
}
fn put_x_piece(column: u32, p: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, e: vec4<f32>,
               f: vec4<f32>, g: vec4<f32>, h: vec4<f32>) {
  let highest = max(max(max(x_highest(a), x_highest(b)), max(x_highest(c), x_highest(d))),
                    max(max(x_highest(e), x_highest(f)), max(x_highest(g), x_highest(h))));
  let scale = bitcast<f32>(highest) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let low = vec4<u32>(x_word(a, inverse), x_word(b, inverse), x_word(c, inverse), x_word(d, inverse));
  let high = vec4<u32>(x_word(e, inverse), x_word(f, inverse), x_word(g, inverse), x_word(h, inverse));
  let at = column * 3u * params.pieces + p;
  x_row[at] = low;
  x_row[at + params.pieces] = high;
  let low_sum = x_words_sum(low);
  let high_sum = x_words_sum(high);
  x_row[at + 2u * params.pieces] = vec4<u32>(bitcast<u32>(scale), bitcast<u32>(low_sum), bitcast<u32>(high_sum),
                                             bitcast<u32>(scale * f32(low_sum + high_sum)));
}

// snippet: x_row = int8
// A column's x: a workgroup puts its quads, then packs them (x_piece = int8).
override max_pieces: u32 = 64;
var<workgroup> x_quads: array<vec4<f32>, 8u * max_pieces>;  // [quad][piece]

fn x_put(quad: u32, v: vec4<f32>) {
  x_quads[(quad & 7u) * max_pieces + (quad >> 3u)] = v;
}
// In uniform control flow; waits.
fn put_x_row(column: u32, thread: u32) {
  workgroupBarrier();
  for (var p = thread; p < params.pieces; p += lanes * groups) {
    put_x_piece(column, p, x_quads[p], x_quads[max_pieces + p], x_quads[2u * max_pieces + p],
                x_quads[3u * max_pieces + p], x_quads[4u * max_pieces + p], x_quads[5u * max_pieces + p],
                x_quads[6u * max_pieces + p], x_quads[7u * max_pieces + p]);
  }
}

// snippet: x_row = float
// A column's x as floats (their bits), cols of them, a multiple of 4.
override max_pieces: u32 = 64;

fn x_put(quad: u32, v: vec4<f32>) {
  if (quad * 4u < params.cols) {
    x_row[x_column * (params.cols / 4u) + quad] = bitcast<vec4<u32>>(v);
  }
}
fn put_x_row(column: u32, thread: u32) {
  workgroupBarrier();
}

// snippet: x_batch = int8
requires packed_4x8_integer_dot_product;

// x of a product with several columns, as x_piece = int8 left it.
struct X {
  low: vec4<u32>,
  high: vec4<u32>,
  scale: f32,
  low_sum: i32,
  high_sum: i32,
  total: f32,
}
fn x_piece(column: u32, p: u32) -> X {
  let at = column * 3u * params.pieces + p;
  let rest = x[at + 2u * params.pieces];
  return X(x[at], x[at + params.pieces], bitcast<f32>(rest.x), bitcast<i32>(rest.y), bitcast<i32>(rest.z),
           bitcast<f32>(rest.w));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return raw_int_add(sum, raw, piece, x);
}

// snippet: x_batch = float
// x of a product with several columns, as x_row = float left it.
struct X {
  piece: Piece,
  low: f32,
  high: f32,
}
fn x_quad(column: u32, quad: u32) -> vec4<f32> {
  let quads = params.cols / 4u;
  return select(vec4<f32>(0.0), bitcast<vec4<f32>>(x[column * quads + min(quad, quads - 1u)]), quad < quads);
}
fn x_total(v: vec4<f32>) -> f32 {
  return (v.x + v.y) + (v.z + v.w);
}
fn x_piece(column: u32, p: u32) -> X {
  let q = p * 8u;
  let v = Piece(x_quad(column, q), x_quad(column, q + 1u), x_quad(column, q + 2u), x_quad(column, q + 3u),
                x_quad(column, q + 4u), x_quad(column, q + 5u), x_quad(column, q + 6u), x_quad(column, q + 7u));
  return X(v, x_total((v.a + v.b) + (v.c + v.d)), x_total((v.e + v.f) + (v.g + v.h)));
}
fn x_add(sum: f32, raw: Raw, piece: u32, x: X) -> f32 {
  return sum + raw_dot(raw, piece, x.piece, x.low, x.high);
}
