// Sampling, second step (after argmax): how many candidates each bin has and what they weigh.
// use: index
// use: sort_key
// use: best
// use: penalised
// use: sample_bins

override threads: u32 = 256;
const kEach: u32 = 8;  // logits a thread, all read at once

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
  let best = best_of_maxima(params.pairs, lane);
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
