// The best (key, id) of a workgroup of 256 threads, the same in every thread. Call in uniform control flow; waits.
const kNoPair: vec2<u32> = vec2<u32>(0u, 0xffffffffu);
var<workgroup> pairs: array<vec2<u32>, threads>;
var<workgroup> row_best: array<vec2<u32>, 16>;
var<workgroup> best_pair: vec2<u32>;

fn better_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, better(b, a));
}

fn workgroup_best(mine: vec2<u32>, lane: u32) -> vec2<u32> {
  pairs[lane] = mine;
  workgroupBarrier();
  if (lane < 16u) {
    var best = pairs[lane];
    for (var i = 16u; i < 256u; i += 16u) {
      best = better_of(best, pairs[i + lane]);
    }
    row_best[lane] = best;
  }
  workgroupBarrier();
  if (lane == 0u) {
    var best = row_best[0];
    for (var i = 1u; i < 16u; i++) {
      best = better_of(best, row_best[i]);
    }
    best_pair = best;
  }
  return workgroupUniformLoad(&best_pair);
}

// The best of `count` pairs in `maxima`.
fn best_of_maxima(count: u32, lane: u32) -> vec2<u32> {
  var mine = kNoPair;
  for (var i = lane; i < count; i += threads) {
    mine = better_of(mine, maxima[i]);
  }
  return workgroup_best(mine, lane);
}
