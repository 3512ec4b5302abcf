// Sampling, first two dispatches: a histogram of the logits and a list of those that may be drawn.

// snippet: sample_bins
// Candidates by how far they lie below the highest logit, in units of the temperature ("depth": a candidate's weight is
// exp(-depth)), in bins of 1/kPerUnit. Past kDeepest a weight is nothing in f32. Bins are ordered as the candidates are;
// min-p's border falls between two of them.
const kBins: u32 = 1024;
const kPerUnit: f32 = 9.8;
const kDeepest: f32 = 104.0;

fn depth_of(key: u32, highest: f32, inverse_temperature: f32) -> f32 {
  return (highest - bitcast<f32>(key_bits(key))) * inverse_temperature;
}

// Only finite logits are candidates. If the highest is not finite there are none.
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

// kernel: sample_histogram
// Sampling, second step (after argmax): how many candidates each bin has and what they weigh.
// use: index
// use: sort_key
// use: best
// use: penalised
// use: sample_bins

override threads: u32 = 256;
const kEach: u32 = 8;  // logits per thread, all read at once

struct Params {
  vocab: u32,
  pairs: u32,                // of maxima
  penalty: f32,              // 1: none
  inverse_temperature: f32,
  min_p_depth: f32,          // -ln(min-p), or past the deepest
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;  // f32
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read> maxima: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> bins: array<atomic<u32>>;  // [4][kBins]: count, low, high, listed

var<workgroup> counts: array<atomic<u32>, kBins>;
var<workgroup> lows: array<atomic<u32>, kBins>;
var<workgroup> highs: array<atomic<u32>, kBins>;

fn key_at(i: u32) -> u32 {
  return select(0u, penalised_key(min(i, params.vocab - 1u)), i < params.vocab);
}

fn count_key(key: u32, highest: f32) {
  let depth = depth_of(key, highest, params.inverse_temperature);
  if (is_finite_key(key) && depth <= kDeepest) {
    let bin = bin_of(depth, params.min_p_depth);
    let weight = fixed_weight(depth - bin_depth(bin, params.min_p_depth));
    atomicAdd(&counts[bin], 1u);
    atomicAdd(&lows[bin], weight.x);
    atomicAdd(&highs[bin], weight.y);
  }
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads * kEach + lane;
  let a = key_at(i);
  let b = key_at(i + threads);
  let c = key_at(i + 2u * threads);
  let d = key_at(i + 3u * threads);
  let e = key_at(i + 4u * threads);
  let f = key_at(i + 5u * threads);
  let g = key_at(i + 6u * threads);
  let h = key_at(i + 7u * threads);
  for (var bin = lane; bin < kBins; bin += threads) {
    atomicStore(&counts[bin], 0u);
    atomicStore(&lows[bin], 0u);
    atomicStore(&highs[bin], 0u);
  }
  let best = best_of_maxima(0u, params.pairs, lane);
  if (is_finite_key(best.x)) {
    let highest = bitcast<f32>(key_bits(best.x));
    count_key(a, highest);
    count_key(b, highest);
    count_key(c, highest);
    count_key(d, highest);
    count_key(e, highest);
    count_key(f, highest);
    count_key(g, highest);
    count_key(h, highest);
  }
  workgroupBarrier();
  for (var bin = lane; bin < kBins; bin += threads) {
    let here = atomicLoad(&counts[bin]);
    if (here != 0u) {
      atomicAdd(&bins[bin], here);
      atomicAdd(&bins[kBins + bin], atomicLoad(&lows[bin]));
      atomicAdd(&bins[2u * kBins + bin], atomicLoad(&highs[bin]));
    }
  }
}

// kernel: sample_list
// Sampling, third step: lists the candidates, bin after bin, as far as top-k can reach. Inside a bin their order is
// whatever the workgroups' order is; the next step looks only at sums and ranks, which do not depend on it.
// use: index
// use: sort_key
// use: best
// use: penalised
// use: sample_bins
// use: scan

override threads: u32 = 256;
const kEach: u32 = 8;  // logits per thread, all read at once
const kThreadBins: u32 = 4;

struct Params {
  vocab: u32,
  pairs: u32,                // of maxima
  top_k: u32,                // 0: all
  penalty: f32,              // 1: none
  inverse_temperature: f32,
  min_p_depth: f32,          // -ln(min-p), or past the deepest
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;  // f32
@group(0) @binding(2) var<storage, read> seen: array<u32>;
@group(0) @binding(3) var<storage, read> maxima: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> bins: array<atomic<u32>>;     // [4][kBins]: count, low, high, listed
@group(0) @binding(5) var<storage, read_write> candidates: array<vec2<u32>>; // [vocab]: (key, id)

var<workgroup> starts: array<u32, kBins>;          // candidates in the bins before
var<workgroup> counts: array<atomic<u32>, kBins>;  // of this workgroup's candidates

fn key_at(i: u32) -> u32 {
  return select(0u, penalised_key(min(i, params.vocab - 1u)), i < params.vocab);
}

// (bin, place among this workgroup's candidates of that bin); kBins: not listed.
fn place_of(key: u32, highest: f32) -> vec2<u32> {
  let depth = depth_of(key, highest, params.inverse_temperature);
  if (is_finite_key(key) && depth <= kDeepest) {
    let bin = bin_of(depth, params.min_p_depth);
    // A bin that starts past the k-th candidate holds none of the first k.
    if (params.top_k == 0u || starts[bin] < params.top_k) {
      return vec2<u32>(bin, atomicAdd(&counts[bin], 1u));
    }
  }
  return vec2<u32>(kBins, 0u);
}

fn put(place: vec2<u32>, key: u32, id: u32) {
  if (place.x < kBins) {
    candidates[starts[place.x] + place.y] = vec2<u32>(key, id);
  }
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads * kEach + lane;
  let a = key_at(i);
  let b = key_at(i + threads);
  let c = key_at(i + 2u * threads);
  let d = key_at(i + 3u * threads);
  let e = key_at(i + 4u * threads);
  let f = key_at(i + 5u * threads);
  let g = key_at(i + 6u * threads);
  let h = key_at(i + 7u * threads);
  let bin = lane * kThreadBins;
  let n0 = atomicLoad(&bins[bin]);
  let n1 = n0 + atomicLoad(&bins[bin + 1u]);
  let n2 = n1 + atomicLoad(&bins[bin + 2u]);
  let n3 = n2 + atomicLoad(&bins[bin + 3u]);
  for (var n = lane; n < kBins; n += threads) {
    atomicStore(&counts[n], 0u);
  }
  let best = best_of_maxima(0u, params.pairs, lane);
  if (!is_finite_key(best.x)) {
    return;
  }
  scan(n3, 0.0, lane);
  let before = count_sums[lane] - n3;
  starts[bin] = before;
  starts[bin + 1u] = before + n0;
  starts[bin + 2u] = before + n1;
  starts[bin + 3u] = before + n2;
  workgroupBarrier();

  let highest = bitcast<f32>(key_bits(best.x));
  let pa = place_of(a, highest);
  let pb = place_of(b, highest);
  let pc = place_of(c, highest);
  let pd = place_of(d, highest);
  let pe = place_of(e, highest);
  let pf = place_of(f, highest);
  let pg = place_of(g, highest);
  let ph = place_of(h, highest);
  workgroupBarrier();
  for (var n = lane; n < kBins; n += threads) {
    let here = atomicLoad(&counts[n]);
    if (here != 0u) {
      starts[n] += atomicAdd(&bins[3u * kBins + n], here);
    }
  }
  workgroupBarrier();
  put(pa, a, i);
  put(pb, b, i + threads);
  put(pc, c, i + 2u * threads);
  put(pd, d, i + 3u * threads);
  put(pe, e, i + 4u * threads);
  put(pf, f, i + 5u * threads);
  put(pg, g, i + 6u * threads);
  put(ph, h, i + 7u * threads);
}
