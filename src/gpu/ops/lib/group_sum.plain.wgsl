// Σ over a workgroup of lanes · groups threads, the same in every thread: put, a barrier, get. `slot` is 0 or 1: two sums
// may be under way. Call in uniform control flow.
override subgroup: u32 = 1;
var<workgroup> group_sums: array<f32, 2u * lanes * groups>;
var<workgroup> group_parts: array<f32, 32>;

fn group_sum_put(value: f32, thread: u32, slot: u32) {
  group_sums[slot * lanes * groups + thread] = value;
}
fn group_sum_get(thread: u32, slot: u32) -> f32 {
  if (thread < 16u) {
    var sum = 0.0;
    for (var i = thread; i < lanes * groups; i += 16u) {
      sum += group_sums[slot * lanes * groups + i];
    }
    group_parts[slot * 16u + thread] = sum;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < 16u; i++) {
    total += group_parts[slot * 16u + i];
  }
  return total;
}
