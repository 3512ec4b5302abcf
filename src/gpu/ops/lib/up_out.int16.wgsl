// Results of an expert's gate and up as 16-bit integers (int16.mxfp4.wgsl), ready for the down projection
// (x.stored16.wgsl): twenty words a piece of 32: the high bytes, the low bytes, the scale, three unused. A workgroup
// makes whole pieces: groups · rows · bands is a multiple of 64, an expert's results of 32.
var<workgroup> results: array<f32, groups * rows * bands / 2u>;

fn put_result(at: u32, value: f32) {
  results[at % (groups * rows * bands / 2u)] = value;
}
fn finish_results(first: u32, thread: u32) {
  workgroupBarrier();
  let piece = first / 64u + thread;
  if (thread >= groups * rows * bands / 64u || piece * 64u >= params.rows) {
    return;
  }
  var quads: array<vec4<f32>, 8>;
  for (var k = 0u; k < 8u; k++) {
    let at = thread * 32u + k * 4u;
    quads[k] = vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
  }
  let v = sixteen_bits(quads);
  let to = (expert_slot * (params.rows / 64u) + piece) * 20u;
  for (var i = 0u; i < 4u; i++) {
    y[to + i] = v.high_low[i];
    y[to + 4u + i] = v.high_high[i];
    y[to + 8u + i] = v.low_low[i];
    y[to + 12u + i] = v.low_high[i];
  }
  y[to + 16u] = bitcast<u32>(v.scale);
}
