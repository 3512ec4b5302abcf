enable subgroups;
diagnostic(off, subgroup_uniformity);

// Σ over a workgroup of lanes · groups threads, the same in every thread. `slot` is 0 or 1: two sums may follow each other
// without waiting in between. Call in uniform control flow.
override subgroup: u32 = 32;  // threads of one; consecutive threads
var<workgroup> group_parts: array<f32, 2u * ((lanes * groups + subgroup - 1u) / subgroup)>;

fn group_sum(value: f32, thread: u32, slot: u32) -> f32 {
  let count = (lanes * groups + subgroup - 1u) / subgroup;
  let part = subgroupAdd(value);
  if (thread % subgroup == 0u) {
    group_parts[slot * count + thread / subgroup] = part;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < count; i++) {
    total += group_parts[slot * count + i];
  }
  return total;
}
