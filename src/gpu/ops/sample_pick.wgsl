// Sampling, last dispatch: one workgroup draws the token.

// snippet: scan
// Sums of counts and weights over the threads of a workgroup of 256, up to and with each thread. They stay in
// count_sums and weight_sums until the next scan. Call in uniform control flow; waits on both sides.
var<workgroup> count_sums: array<u32, threads>;
var<workgroup> weight_sums: array<f32, threads>;
var<workgroup> row_counts: array<u32, 16>;
var<workgroup> row_weights: array<f32, 16>;

fn scan(count: u32, weight: f32, lane: u32) {
  count_sums[lane] = count;
  weight_sums[lane] = weight;
  workgroupBarrier();
  if (lane < 16u) {
    var counts = 0u;
    var weights = 0.0;
    for (var i = 0u; i < 16u; i++) {
      counts += count_sums[lane * 16u + i];
      weights += weight_sums[lane * 16u + i];
    }
    row_counts[lane] = counts;
    row_weights[lane] = weights;
  }
  workgroupBarrier();
  var counts = 0u;
  var weights = 0.0;
  for (var row = 0u; row < 16u; row++) {
    if (row < lane / 16u) {
      counts += row_counts[row];
      weights += row_weights[row];
    }
  }
  for (var i = 0u; i < 16u; i++) {
    if (i <= lane % 16u) {
      counts += count_sums[lane / 16u * 16u + i];
      weights += weight_sums[lane / 16u * 16u + i];
    }
  }
  workgroupBarrier();
  count_sums[lane] = counts;
  weight_sums[lane] = weights;
  workgroupBarrier();
}

// snippet: philox
// Philox 4×32 with ten rounds, as in src/engine/random.h: number `counter` of a seed.
fn multiply_wide(a: u32, b: u32) -> vec2<u32> {  // (low, high)
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let b0 = b & 0xffffu;
  let b1 = b >> 16u;
  let middle = a1 * b0 + ((a0 * b0) >> 16u);
  let carry = a0 * b1 + (middle & 0xffffu);
  return vec2<u32>(a * b, a1 * b1 + (middle >> 16u) + (carry >> 16u));
}

// Uniform in [0, 1), 24 bits.
fn uniform_number(seed: vec2<u32>, counter: u32) -> f32 {
  var x = vec4<u32>(counter, 0u, 0u, 0u);
  var key = seed;
  for (var round = 0u; round < 10u; round++) {
    let a = multiply_wide(0xD2511F53u, x.x);
    let b = multiply_wide(0xCD9E8D57u, x.z);
    x = vec4<u32>(b.y ^ x.y ^ key.x, b.x, a.y ^ x.w ^ key.y, a.x);
    key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return f32(x.x >> 8u) * 0x1p-24f;
}

// kernel: sample_pick
// Sampling, last step: top-k, top-p, min-p and the draw, each of which asks for a place in the candidates' order. One
// workgroup, which then leaves the bins empty for the next token.
// use: state
// use: sort_key
// use: best
// use: sample_bins
// use: scan
// use: philox
// use: commit_token
// use: sample_place

override threads: u32 = 256;
const kThreadBins: u32 = 4;  // kBins / threads

struct Params {
  vocab: u32,
  pairs: u32,                // of maxima
  top_k: u32,                // 0: all
  advance: u32,              // tokens that this step added to the context
  inverse_temperature: f32,
  top_p: f32,                // 1: all
  min_p_depth: f32,          // -ln(min-p), or past the deepest
  seed_low: u32,
  seed_high: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> maxima: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> bins: array<atomic<u32>>;  // [4][kBins]: count, low, high, listed
@group(0) @binding(3) var<storage, read> candidates: array<vec2<u32>>;          // [vocab]: (key, id)
@group(0) @binding(4) var<storage, read_write> state: State;
@group(0) @binding(5) var<storage, read_write> out_tokens: array<u32>;
@group(0) @binding(6) var<storage, read_write> seen: array<u32>;

// Fills count_to and weight_to from the bins.
fn sum_bins(lane: u32) {
  var counts: array<u32, kThreadBins>;
  var weights: array<f32, kThreadBins>;
  var count = 0u;
  var weight = 0.0;
  for (var i = 0u; i < kThreadBins; i++) {
    let bin = lane * kThreadBins + i;
    count += atomicLoad(&bins[bin]);
    weight += exp(-bin_depth(bin, params.min_p_depth)) *
              sum_of_fixed(atomicLoad(&bins[kBins + bin]), atomicLoad(&bins[2u * kBins + bin]));
    counts[i] = count;
    weights[i] = weight;
  }
  scan(count, weight, lane);
  let counts_before = count_sums[lane] - count;
  let weights_before = select(0.0, weight_sums[max(lane, 1u) - 1u], lane > 0u);
  for (var i = 0u; i < kThreadBins; i++) {
    count_to[lane * kThreadBins + i] = counts_before + counts[i];
    weight_to[lane * kThreadBins + i] = weights_before + weights[i];
  }
  workgroupBarrier();
}

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) lane: u32) {
  let best = best_of_maxima(0u, params.pairs, lane);
  sum_bins(lane);

  let all = workgroupUniformLoad(&count_to[kBins - 1u]);
  let highest = bitcast<f32>(key_bits(best.x));
  var kept = all;
  var kept_weight = workgroupUniformLoad(&weight_to[kBins - 1u]);
  var drawn = Place(0u, 0.0, best.y);
  var range = Range(0u, kNone, vec2<u32>(0u, kNone), vec2<u32>(0u, kNone), 0u, 0u, 0.0);  // none yet
  for (var stage = 0u; stage < 4u; stage++) {
    var wanted = Wanted(kByCount, kept, 0.0);
    var needed = all != 0u;
    if (stage == 0u) {
      needed = needed && params.top_k != 0u && params.top_k < all;
      wanted.count = params.top_k;
    } else if (stage == 1u) {
      needed = needed && params.top_p < 1.0;
      wanted.by = kByReach;
      wanted.weight = params.top_p * kept_weight;
    } else if (stage == 2u) {
      let border = min_p_bin(params.min_p_depth);
      let heavy = workgroupUniformLoad(&count_to[border]);
      if (heavy < kept) {
        kept = heavy;
        kept_weight = workgroupUniformLoad(&weight_to[border]);
      }
      wanted.by = kByExcess;
      wanted.weight = uniform_number(vec2<u32>(params.seed_low, params.seed_high), state.draw) * kept_weight;
    } else {
      needed = needed && drawn.count > kept;  // rounding: the last one that is kept
      wanted.count = kept;
    }
    if (needed) {
      // Every place lies before the one that was asked for last, so a ranked beginning serves them all.
      if (range.begin != 0u || range.end > threads) {
        range = range_of(wanted, kept, highest, params.inverse_temperature, lane);
        rank_range(range, highest, params.inverse_temperature, lane);
      }
      let place = place_in(range, wanted, lane);
      if (stage >= 2u) {
        drawn = place;
      } else if (place.count < kept) {
        kept = place.count;
        kept_weight = place.weight;
      }
    }
  }
  for (var i = lane; i < 4u * kBins; i += threads) {
    atomicStore(&bins[i], 0u);
  }
  workgroupBarrier();  // every thread has read state.draw
  if (lane == 0u) {
    commit_token(drawn.id, best.x, params.advance);
  }
}
