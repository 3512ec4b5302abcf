// Σ over a team of `lanes` neighbouring threads, the same in each of them. Call in uniform control flow; waits.
var<workgroup> team_parts: array<vec4<f32>, lanes * groups>;

fn team_sum(value: vec4<f32>, thread: u32) -> vec4<f32> {
  team_parts[thread] = value;
  workgroupBarrier();
  var sum = vec4<f32>(0.0);
  for (var i = 0u; i < lanes; i++) {
    sum += team_parts[thread / lanes * lanes + i];
  }
  workgroupBarrier();
  return sum;
}
