enable subgroups;
requires packed_4x8_integer_dot_product;
diagnostic(off, subgroup_uniformity);

// As project_out.int8, where the eight threads of a piece are neighbours in a subgroup of at least eight and agree on its
// scale by shuffles.
var<workgroup> results: array<f32, groups * rows * bands / 2u>;

fn put_result(at: u32, value: f32) {
  results[at % (groups * rows * bands / 2u)] = value;
}

// Eight threads a piece: each makes one word and three of them the rest.
fn finish_results(first: u32, thread: u32) {
  workgroupBarrier();
  let pieces = groups * rows * bands / 64u;
  if (thread >= pieces * 8u) {
    return;
  }
  let to = first / 64u + thread / 8u;
  let place = thread % 8u;
  let v = vec4<f32>(results[thread * 4u], results[thread * 4u + 1u], results[thread * 4u + 2u],
                    results[thread * 4u + 3u]);
  let m = abs(v);
  var highest = max(max(m.x, m.y), max(m.z, m.w));
  highest = max(highest, subgroupShuffleXor(highest, 1u));
  highest = max(highest, subgroupShuffleXor(highest, 2u));
  highest = max(highest, subgroupShuffleXor(highest, 4u));
  let scale = highest / 127.0;
  let inverse = select(0.0, 1.0 / scale, scale > 0.0);
  let word = pack4xI8(vec4<i32>(round(v * inverse)));
  var sum = dot4I8Packed(word, 0x01010101u);
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  if (to * 64u >= params.rows) {
    return;
  }
  y[to * 12u + place] = word;
  if (place % 4u == 0u) {
    y[to * 12u + 9u + place / 4u] = bitcast<u32>(sum);
  } else if (place == 1u) {
    y[to * 12u + 8u] = bitcast<u32>(scale);
  }
}
