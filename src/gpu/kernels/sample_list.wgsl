// Sampling, third step: lists the candidates, bin after bin, as far as top-k can reach. Inside a bin their order is
// whatever the workgroups' order is; the next step looks only at sums and ranks, which do not depend on it.
// use: index
// use: sort_key
// use: best
// use: penalised
// use: sample_bins
// use: scan

override threads: u32 = 256;
const kEach: u32 = 16;  // logits a thread
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
@group(0) @binding(4) var<storage, read_write> bins: array<atomic<u32>>;  // [4][kBins]: count, low, high, listed
@group(0) @binding(5) var<storage, read_write> candidates: array<vec2<u32>>;    // [vocab]: (key, id)

var<workgroup> starts: array<u32, kBins>;          // candidates in the bins before
var<workgroup> counts: array<atomic<u32>, kBins>;  // of this workgroup's candidates

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
  if (!is_finite_key(best.x)) {
    return;
  }
  var here: array<u32, kThreadBins>;
  var all = 0u;
  for (var i = 0u; i < kThreadBins; i++) {
    here[i] = atomicLoad(&bins[lane * kThreadBins + i]);
    all += here[i];
    atomicStore(&counts[lane * kThreadBins + i], 0u);
  }
  var before = scan_count(all, lane) - all;
  for (var i = 0u; i < kThreadBins; i++) {
    starts[lane * kThreadBins + i] = before;
    before += here[i];
  }
  workgroupBarrier();

  let highest = bitcast<f32>(key_bits(best.x));
  let first = workgroup_index(id, count) * threads * kEach + lane;
  var bin: array<u32, kEach>;
  var place: array<u32, kEach>;
  for (var n = 0u; n < kEach; n++) {
    bin[n] = kBins;
    let i = first + n * threads;
    if (i < params.vocab) {
      let key = penalised_key(i);
      let depth = depth_of(key, highest, params.inverse_temperature);
      if (is_finite_key(key) && depth <= kDeepest) {
        let b = bin_of(depth, params.min_p_depth);
        // A bin that starts past the k-th candidate holds none of the first k.
        if (params.top_k == 0u || starts[b] < params.top_k) {
          bin[n] = b;
          place[n] = atomicAdd(&counts[b], 1u);
        }
      }
    }
  }
  workgroupBarrier();
  for (var i = 0u; i < kThreadBins; i++) {
    let b = lane * kThreadBins + i;
    let mine_here = atomicLoad(&counts[b]);
    if (mine_here != 0u) {
      starts[b] += atomicAdd(&bins[3u * kBins + b], mine_here);
    }
  }
  workgroupBarrier();
  for (var n = 0u; n < kEach; n++) {
    if (bin[n] < kBins) {
      let i = first + n * threads;
      candidates[starts[bin[n]] + place[n]] = vec2<u32>(penalised_key(i), i);
    }
  }
}
