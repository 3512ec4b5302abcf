// Sampling, last step: top-k, top-p, min-p and the draw, each of which asks for a place in the candidates' order. One
// workgroup, which then leaves the bins empty for the next token.
// use: state
// use: sort_key
// use: best
// use: sample_bins
// use: scan
// use: philox
// use: finish_token
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
  let best = best_of_maxima(params.pairs, lane);
  sum_bins(lane);

  let all = workgroupUniformLoad(&count_to[kBins - 1u]);
  let highest = bitcast<f32>(key_bits(best.x));
  var kept = all;
  var kept_weight = workgroupUniformLoad(&weight_to[kBins - 1u]);
  var drawn = Place(0u, 0.0, select(best.y, params.vocab - 1u, best.x == 0u));
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
    finish_token(drawn.id, params.advance);
  }
}
