enable subgroups;
diagnostic(off, subgroup_uniformity);

// Sums over a workgroup of `threads` (a power of two), the same result in every thread. Call in uniform control flow.
// Subgroups hold consecutive lanes (Capabilities::subgroups is set only where that was seen), at least 4 of them.
var<workgroup> reduce_scratch: array<f32, threads / 4u>;

fn workgroup_sum(value: f32, lane: u32) -> f32 {
  let part = subgroupAdd(value);
  let size = subgroupAdd(1u);
  if (subgroupElect()) {
    reduce_scratch[lane / size] = part;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < threads / size; i++) {
    total += reduce_scratch[i];
  }
  workgroupBarrier();
  return total;
}
