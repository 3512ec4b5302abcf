requires packed_4x8_integer_dot_product;

// 32 values as 16-bit integers 256 · high + low with one scale, the bytes apart, and their product with MXFP4 weights.
struct X {
  high_low: vec4<u32>,   // the high bytes of the first 16 elements
  high_high: vec4<u32>,  // of the last 16
  low_low: vec4<u32>,
  low_high: vec4<u32>,
  scale: f32,
}

const kSixteenMost = 32512.0;  // 127 · 256: both bytes stay within int8

struct Sixteen {
  high: u32,
  low: u32,
}
fn sixteen(v: vec4<f32>) -> Sixteen {
  let q = vec4<i32>(round(v));
  let high = (q + 128) >> vec4<u32>(8u);
  return Sixteen(pack4xI8(high), pack4xI8(q - high * 256));
}
fn sixteen_bits(v: array<vec4<f32>, 8>) -> X {
  let most = max(max(max(abs(v[0]), abs(v[1])), max(abs(v[2]), abs(v[3]))),
                 max(max(abs(v[4]), abs(v[5])), max(abs(v[6]), abs(v[7]))));
  let peak = max(max(most.x, most.y), max(most.z, most.w));
  let least = 1e-30;  // pieces below it become zeros: their reciprocal could overflow
  let inverse = select(kSixteenMost / max(peak, least), 0.0, peak < least);
  let a = sixteen(v[0] * inverse);
  let b = sixteen(v[1] * inverse);
  let c = sixteen(v[2] * inverse);
  let d = sixteen(v[3] * inverse);
  let e = sixteen(v[4] * inverse);
  let f = sixteen(v[5] * inverse);
  let g = sixteen(v[6] * inverse);
  let h = sixteen(v[7] * inverse);
  let high_low = vec4<u32>(a.high, b.high, c.high, d.high);
  let high_high = vec4<u32>(e.high, f.high, g.high, h.high);
  let low_low = vec4<u32>(a.low, b.low, c.low, d.low);
  let low_high = vec4<u32>(e.low, f.low, g.low, h.low);
  return X(high_low, high_high, low_low, low_high, peak / kSixteenMost);
}

// sum + Σ of 16 products, in the order in which a device with an accumulating product needs nothing else.
fn add_bytes(sum: i32, w: vec4<u32>, v: vec4<u32>) -> i32 {
  return sum + dot4I8Packed(w.x, v.x) + dot4I8Packed(w.y, v.y) + dot4I8Packed(w.z, v.z) + dot4I8Packed(w.w, v.w);
}
// The sum is exact: at most 32 · 12 · 32512, which a float holds, too.
fn raw_int16_dot(raw: Raw, x: X) -> f32 {
  let v = levels(raw.q);
  let high = add_bytes(add_bytes(0, v.low, x.high_low), v.high, x.high_high);
  let low = add_bytes(add_bytes(0, v.low, x.low_low), v.high, x.low_high);
  return raw.scale * x.scale * f32(256 * high + low);
}
