// Of a projection to logits only what the greedy choice needs: the best (key, id) of a workgroup (lib/sort_key.wgsl), as
// pair `params.first_pair` + the workgroup's number.
const kMerging: u32 = 16u;  // threads that merge the rest
var<private> own_best: vec2<u32> = vec2<u32>(0u, 0xffffffffu);
var<workgroup> bests: array<vec2<u32>, groups * rows>;

fn put_result(at: u32, value: f32) {
  let pair = vec2<u32>(sort_key(bitcast<u32>(value)), at);
  own_best = select(own_best, pair, better(pair, own_best));
}
// The best of the places first, first + step, …
fn best_from(first: u32, step: u32, end: u32) -> vec2<u32> {
  var best = bests[first];
  for (var i = first + step; i < end; i += step) {
    best = select(best, bests[i], better(bests[i], best));
  }
  return best;
}
fn finish_results(first: u32, thread: u32) {
  let count = groups * rows;
  if (thread % lanes < rows) {
    bests[thread / lanes * rows + thread % lanes] = own_best;
  }
  workgroupBarrier();
  if (thread < min(kMerging, count)) {
    bests[thread] = best_from(thread, kMerging, count);
  }
  workgroupBarrier();
  if (thread == 0u && first < params.rows) {
    let best = best_from(0u, 1u, min(kMerging, count));
    let pair = params.first_pair + first / (groups * rows * bands);
    y[2u * pair] = best.x;
    y[2u * pair + 1u] = best.y;
  }
}
