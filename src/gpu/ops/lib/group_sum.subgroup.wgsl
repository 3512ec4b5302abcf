enable subgroups;
diagnostic(off, subgroup_uniformity);

// Σ over a workgroup of lanes · groups threads, the same in every thread: put, a barrier, get. `slot` is 0 or 1: two sums
// may be under way. Call in uniform control flow.
override subgroup: u32 = 32;  // threads of one; consecutive threads
var<workgroup> group_parts: array<f32, 2u * ((lanes * groups + subgroup - 1u) / subgroup)>;

fn group_sum_put(value: f32, thread: u32, slot: u32) {
  let count = (lanes * groups + subgroup - 1u) / subgroup;
  let part = subgroupAdd(value);
  if (thread % subgroup == 0u) {
    group_parts[slot * count + thread / subgroup] = part;
  }
}
fn group_sum_get(thread: u32, slot: u32) -> f32 {
  let count = (lanes * groups + subgroup - 1u) / subgroup;
  var total = 0.0;
  for (var i = 0u; i < count; i++) {
    total += group_parts[slot * count + i];
  }
  return total;
}
