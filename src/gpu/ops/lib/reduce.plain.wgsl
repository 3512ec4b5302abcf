// Sums over a workgroup of `threads` (a power of two), the same result in every thread. Call in uniform control flow.
var<workgroup> reduce_scratch: array<f32, threads>;

fn workgroup_sum(value: f32, lane: u32) -> f32 {
  reduce_scratch[lane] = value;
  for (var half = threads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      reduce_scratch[lane] += reduce_scratch[lane + half];
    }
  }
  workgroupBarrier();
  let total = reduce_scratch[0];
  workgroupBarrier();
  return total;
}
