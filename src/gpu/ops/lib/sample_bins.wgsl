// Candidates by how far they lie below the highest logit, in units of the temperature ("depth": a candidate's weight is
// exp(-depth)), in bins of 1/kPerUnit. Past kDeepest a weight is nothing in f32. Bins are ordered as the candidates are;
// min-p's border falls between two of them.
const kBins: u32 = 1024;
const kPerUnit: f32 = 9.8;
const kDeepest: f32 = 104.0;

fn depth_of(key: u32, highest: f32, inverse_temperature: f32) -> f32 {
  return (highest - bitcast<f32>(key_bits(key))) * inverse_temperature;
}

// Keys of finite logits; all others are no candidates. If the highest is infinite there are none.
fn is_finite_key(key: u32) -> bool {
  return key > 0x007fffffu && key < 0xff800000u;
}

fn bin_of(depth: f32, min_p_depth: f32) -> u32 {
  return min(u32(depth * kPerUnit), kBins - 2u) + select(0u, 1u, depth > min_p_depth);
}

fn min_p_bin(min_p_depth: f32) -> u32 {
  return min(u32(min(min_p_depth, kDeepest) * kPerUnit), kBins - 2u);
}

// The least depth of a bin.
fn bin_depth(bin: u32, min_p_depth: f32) -> f32 {
  return f32(bin - select(0u, 1u, bin > min_p_bin(min_p_depth))) / kPerUnit;
}

// A weight relative to the heaviest of its bin, as a 26-bit fraction in two halves whose sums are exact and have no
// order: up to 2^19 of them fit.
fn fixed_weight(depth_in_bin: f32) -> vec2<u32> {  // (low 13 bits, high)
  let fixed = u32(exp(-depth_in_bin) * 67108864.0 + 0.5);
  return vec2<u32>(fixed & 8191u, fixed >> 13u);
}

fn sum_of_fixed(low: u32, high: u32) -> f32 {
  return (f32(high) * 8192.0 + f32(low)) * (1.0 / 67108864.0);
}
