enable subgroups;
diagnostic(off, subgroup_uniformity);

// Σ over a team of `lanes` neighbouring threads, the same in each of them. A team lies within a subgroup.
fn team_sum(value: vec4<f32>, thread: u32) -> vec4<f32> {
  var sum = value;
  for (var distance = lanes / 2u; distance > 0u; distance /= 2u) {
    sum += subgroupShuffleXor(sum, distance);
  }
  return sum;
}
