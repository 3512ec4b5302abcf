// Activations in the formats that matrix products of many tokens take.

// snippet: x_quad
// x f32 [tokens, params.cols], bound as vec4<f32>.
override vectors: bool = true;  // x may be read four at a time: its row length is a multiple of 4

// Four elements of a token's row from element `at`, zero past the end of the row.
fn x_quad(token: u32, at: u32) -> vec4<f32> {
  if (vectors) {
    if (at < params.cols) {
      return x[(token * params.cols + at) / 4u];
    }
    return vec4<f32>(0.0);
  }
  var v = vec4<f32>(0.0);
  for (var k = 0u; k < 4u; k++) {
    if (at + k < params.cols) {
      let i = token * params.cols + at + k;
      v[k] = x[i / 4u][i % 4u];
    }
  }
  return v;
}

// kernel: quantize_activations
// x f32 [tokens, cols] as 8-bit integers with one scale per piece of 32 columns: x ≈ scale · q, |q| ≤ 127.
// One thread a piece of one token; neighbouring threads have neighbouring tokens, so that stores lie side by side.
requires packed_4x8_integer_dot_product;
// use: index
// use: x_quad

override threads: u32 = 256;

struct Params {
  tokens: u32,
  cols: u32,
  pieces: u32,  // of a token; those past `cols` become zeros
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> values: array<vec4<u32>>;  // [pieces · 2][tokens] of 16 columns
@group(0) @binding(3) var<storage, read_write> scales: array<vec2<f32>>;  // [pieces][tokens] of (scale, scale · Σ q)

const kLeast = 1e-30;  // pieces below it become zeros: their reciprocal could overflow

fn abs_bits(v: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(abs(v));
}

fn pack(v: vec4<f32>, inverse: f32) -> u32 {
  return pack4xI8(vec4<i32>(round(v * inverse)));
}

fn word_sum(w: vec4<u32>) -> i32 {
  let ones = 0x01010101u;
  return dot4I8Packed(w.x, ones) + dot4I8Packed(w.y, ones) + dot4I8Packed(w.z, ones) + dot4I8Packed(w.w, ones);
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  let piece = i / params.tokens;
  let token = i % params.tokens;
  if (piece >= params.pieces) {
    return;
  }
  let at = piece * 32u;
  let a = x_quad(token, at);
  let b = x_quad(token, at + 4u);
  let c = x_quad(token, at + 8u);
  let d = x_quad(token, at + 12u);
  let e = x_quad(token, at + 16u);
  let f = x_quad(token, at + 20u);
  let g = x_quad(token, at + 24u);
  let h = x_quad(token, at + 28u);
  // Of bits, where NaN is above every number: a piece that holds one has no number for a scale.
  let most = max(max(max(abs_bits(a), abs_bits(b)), max(abs_bits(c), abs_bits(d))),
                 max(max(abs_bits(e), abs_bits(f)), max(abs_bits(g), abs_bits(h))));
  let peak = bitcast<f32>(max(max(most.x, most.y), max(most.z, most.w)));
  var scale = 0.0;
  var inverse = 0.0;
  if (!(peak < kLeast)) {
    scale = peak / 127.0;
    inverse = 127.0 / peak;
  }
  let low = vec4<u32>(pack(a, inverse), pack(b, inverse), pack(c, inverse), pack(d, inverse));
  let high = vec4<u32>(pack(e, inverse), pack(f, inverse), pack(g, inverse), pack(h, inverse));
  values[piece * 2u * params.tokens + token] = low;
  values[(piece * 2u + 1u) * params.tokens + token] = high;
  scales[piece * params.tokens + token] = vec2<f32>(scale, scale * f32(word_sum(low) + word_sum(high)));
}

// kernel: activations_to_f16
// x f32 [tokens, cols] as f16 with one scale per token: x ≈ scale · h. The scale is the power of two that brings the
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
