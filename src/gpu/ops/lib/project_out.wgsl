// What a decode projection leaves.

// snippet: project_out = plain
// Results of a projection as they are. y: array<u32>, the bits of f32.
fn put_result(at: u32, value: f32) {
  y[at] = bitcast<u32>(value);
}
fn flush_results(first: u32, thread: u32) {}

// snippet: project_out = int8
requires packed_4x8_integer_dot_product;

// Results of a gated projection as int8 with one scale for 32 of them, ready for the projection that follows
// (lib/x.wgsl): twelve words per piece: 16 bytes, 16 bytes, the scale, Σ of the first sixteen, of the last, and of all,
// scaled. A
// workgroup makes whole pieces: groups · rows · bands is a multiple of 64.
var<workgroup> results: array<f32, groups * rows * bands / 2u>;

fn put_result(at: u32, value: f32) {
  results[at % (groups * rows * bands / 2u)] = value;
}

fn result_word(quad: u32, inverse: f32) -> u32 {
  let v = vec4<f32>(results[quad * 4u], results[quad * 4u + 1u], results[quad * 4u + 2u], results[quad * 4u + 3u]);
  return pack4xI8(vec4<i32>(round(v * inverse)));
}
// Eight threads per piece: each makes one word and three of them the rest.
fn flush_results(first: u32, thread: u32) {
  workgroupBarrier();
  let pieces = groups * rows * bands / 64u;
  if (thread >= pieces * 8u) {
    return;
  }
  let piece = thread / 8u;
  let to = first / 64u + piece;
  if (to * 64u >= params.rows) {
    return;
  }
  var highest = 0u;  // of bits, where NaN is above every number
  for (var i = 0u; i < 32u; i++) {
    highest = max(highest, bitcast<u32>(abs(results[piece * 32u + i])));
  }
  let scale = bitcast<f32>(highest) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let place = thread % 8u;
  y[to * 12u + place] = result_word(thread, inverse);
  if (place < 2u) {
    var sum = 0;
    for (var i = 0u; i < 4u; i++) {
      sum += dot4I8Packed(result_word(piece * 8u + place * 4u + i, inverse), 0x01010101u);
    }
    y[to * 12u + 9u + place] = bitcast<u32>(sum);
  } else if (place == 2u) {
    y[to * 12u + 8u] = bitcast<u32>(scale);
  } else if (place == 3u) {
    var sum = 0;
    for (var i = 0u; i < 8u; i++) {
      sum += dot4I8Packed(result_word(piece * 8u + i, inverse), 0x01010101u);
    }
    y[to * 12u + 11u] = bitcast<u32>(scale * f32(sum));
  }
}

// snippet: project_out = int8_wide
enable subgroups;
requires packed_4x8_integer_dot_product;
diagnostic(off, subgroup_uniformity);

// As int8, where the eight threads of a piece are neighbours in a subgroup of at least eight and agree on its
// scale by shuffles.
var<workgroup> results: array<f32, groups * rows * bands / 2u>;

fn put_result(at: u32, value: f32) {
  results[at % (groups * rows * bands / 2u)] = value;
}

// Eight threads per piece: each makes one word and three of them the rest.
fn flush_results(first: u32, thread: u32) {
  workgroupBarrier();
  let pieces = groups * rows * bands / 64u;
  if (thread >= pieces * 8u) {
    return;
  }
  let to = first / 64u + thread / 8u;
  let place = thread % 8u;
  let v = vec4<f32>(results[thread * 4u], results[thread * 4u + 1u], results[thread * 4u + 2u],
                    results[thread * 4u + 3u]);
  let m = bitcast<vec4<u32>>(abs(v));  // NaN is the highest
  var highest = max(max(m.x, m.y), max(m.z, m.w));
  highest = max(highest, subgroupShuffleXor(highest, 1u));
  highest = max(highest, subgroupShuffleXor(highest, 2u));
  highest = max(highest, subgroupShuffleXor(highest, 4u));
  let scale = bitcast<f32>(highest) / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let word = pack4xI8(vec4<i32>(round(v * inverse)));
  var sum = dot4I8Packed(word, 0x01010101u);
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  let total = scale * f32(sum + subgroupShuffleXor(sum, 4u));
  if (to * 64u >= params.rows) {
    return;
  }
  y[to * 12u + place] = word;
  if (place % 4u == 0u) {
    y[to * 12u + 9u + place / 4u] = bitcast<u32>(sum);
  } else if (place == 1u) {
    y[to * 12u + 8u] = bitcast<u32>(scale);
  } else if (place == 2u) {
    y[to * 12u + 11u] = bitcast<u32>(total);
  }
}

// snippet: project_out = best
// Of a projection to logits only what the greedy choice needs: the best (key, id) of a workgroup (argmax.wgsl), as
// pair `params.first_pair` + the workgroup's number.
const kMerging: u32 = 16u;  // threads that merge the rest
var<private> own_best: vec2<u32> = vec2<u32>(0u, 0xffffffffu);
var<workgroup> bests: array<vec2<u32>, groups * rows>;

fn put_result(at: u32, value: f32) {
  let pair = vec2<u32>(sort_key(bitcast<u32>(value)), at);
  own_best = select(own_best, pair, better(pair, own_best));
}
// The best of the places first, first + step, …
fn best_from(first: u32, step: u32, end: u32) -> vec2<u32> {
  var best = bests[first];
  for (var i = first + step; i < end; i += step) {
    best = select(best, bests[i], better(bests[i], best));
  }
  return best;
}
fn flush_results(first: u32, thread: u32) {
  let count = groups * rows;
  if (thread % lanes < rows) {
    bests[thread / lanes * rows + thread % lanes] = own_best;
  }
  workgroupBarrier();
  if (thread < min(kMerging, count)) {
    bests[thread] = best_from(thread, kMerging, count);
  }
  workgroupBarrier();
  if (thread == 0u && first < params.rows) {
    let best = best_from(0u, 1u, min(kMerging, count));
    let pair = params.first_pair + first / (groups * rows * bands);
    y[2u * pair] = best.x;
    y[2u * pair + 1u] = best.y;
  }
}
