// x f32 [tokens, cols] as f16 with one scale a token: x ≈ scale · h. The scale is the power of two that brings the
// largest |h| into [2^14, 2^15), so nothing overflows, and what is rounded to zero is below 2^-39 of the largest.
// One workgroup a token.
// use: index
// use: x_quad

override threads: u32 = 256;

struct Params {
  tokens: u32,
  cols: u32,
  eights: u32,  // of 8 columns, of a token; those past `cols` become zeros
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> values: array<vec4<u32>>;  // [tokens][eights]
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;        // [tokens]

const kLeast = 1e-30;  // tokens below it become zeros: their reciprocal could overflow
const kTop = 14u << 23u;

var<workgroup> peaks: array<f32, threads>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let token = workgroup_index(id, count);
  if (token >= params.tokens) {
    return;
  }
  var most = vec4<f32>(0.0);
  for (var i = lane * 4u; i < params.cols; i += threads * 4u) {
    most = max(most, abs(x_quad(token, i)));
  }
  peaks[lane] = max(max(most.x, most.y), max(most.z, most.w));
  for (var half = threads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      peaks[lane] = max(peaks[lane], peaks[lane + half]);
    }
  }
  workgroupBarrier();
  let peak = peaks[0];
  var scale = 0.0;
  var inverse = 0.0;
  if (!(peak < kLeast)) {
    let power = bitcast<u32>(peak) & 0x7f800000u;
    scale = bitcast<f32>(power - kTop);
    inverse = bitcast<f32>(kTop + (254u << 23u) - power);
  }
  if (lane == 0u) {
    scales[token] = scale;
  }
  for (var i = lane; i < params.eights; i += threads) {
    let a = x_quad(token, i * 8u) * inverse;
    let b = x_quad(token, i * 8u + 4u) * inverse;
    values[token * params.eights + i] = vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy),
                                                  pack2x16float(b.zw));
  }
}
