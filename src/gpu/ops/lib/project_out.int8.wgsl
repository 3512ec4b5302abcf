requires packed_4x8_integer_dot_product;

// Results of a gated projection as int8 with one scale for 32 of them, ready for the projection that follows
// (lib/x.stored.wgsl): twelve words a piece: 16 bytes, 16 bytes, the scale, Σ of the first sixteen, of the last, 0. A
// workgroup makes whole pieces: groups · rows · bands is a multiple of 64.
var<workgroup> results: array<f32, groups * rows * bands / 2u>;

fn put_result(at: u32, value: f32) {
  results[at % (groups * rows * bands / 2u)] = value;
}

fn result_word(quad: u32, inverse: f32) -> u32 {
  let v = vec4<f32>(results[quad * 4u], results[quad * 4u + 1u], results[quad * 4u + 2u], results[quad * 4u + 3u]);
  return pack4xI8(vec4<i32>(round(v * inverse)));
}
// Eight threads a piece: each makes one word and three of them the rest.
fn finish_results(first: u32, thread: u32) {
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
  var highest = 0.0;
  for (var i = 0u; i < 32u; i++) {
    highest = max(highest, abs(results[piece * 32u + i]));
  }
  let scale = highest / 127.0;
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
  }
}
