// Sampling, second step (after argmax): how many candidates each bin has and what they weigh.
// use: index
// use: sort_key
// use: best
// use: penalised
// use: sample_bins

override threads: u32 = 256;

struct Params {
  vocab: u32,
  part: u32,                 // logits a workgroup
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

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  var mine = kNoPair;
  for (var i = lane; i < params.pairs; i += threads) {
    if (better(maxima[i], mine)) {
      mine = maxima[i];
    }
  }
  let best = workgroup_best(mine, lane);
  for (var i = lane; i < kBins; i += threads) {
    atomicStore(&counts[i], 0u);
    atomicStore(&lows[i], 0u);
    atomicStore(&highs[i], 0u);
  }
  workgroupBarrier();
  let highest = bitcast<f32>(key_bits(best.x));
  let first = workgroup_index(id, count) * params.part;
  if (is_finite_key(best.x)) {
    for (var i = first + lane; i < min(first + params.part, params.vocab); i += threads) {
      let key = penalised_key(i);
      let depth = depth_of(key, highest, params.inverse_temperature);
      if (is_finite_key(key) && depth <= kDeepest) {
        let bin = bin_of(depth, params.min_p_depth);
        let weight = fixed_weight(depth - bin_depth(bin, params.min_p_depth));
        atomicAdd(&counts[bin], 1u);
        atomicAdd(&lows[bin], weight.x);
        atomicAdd(&highs[bin], weight.y);
      }
    }
  }
  workgroupBarrier();
  for (var i = lane; i < kBins; i += threads) {
    let here = atomicLoad(&counts[i]);
    if (here != 0u) {
      atomicAdd(&bins[i], here);
      atomicAdd(&bins[kBins + i], atomicLoad(&lows[i]));
      atomicAdd(&bins[2u * kBins + i], atomicLoad(&highs[i]));
    }
  }
}
