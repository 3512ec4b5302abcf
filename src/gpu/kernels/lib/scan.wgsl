// Inclusive sums over a workgroup of `threads`. Call in uniform control flow; waits on both sides.
var<workgroup> scan_counts: array<u32, threads>;
var<workgroup> scan_weights: array<f32, threads>;

fn scan_count(value: u32, lane: u32) -> u32 {
  scan_counts[lane] = value;
  for (var step = 1u; step < threads; step *= 2u) {
    workgroupBarrier();
    var sum = scan_counts[lane];
    if (lane >= step) {
      sum += scan_counts[lane - step];
    }
    workgroupBarrier();
    scan_counts[lane] = sum;
  }
  let sum = scan_counts[lane];
  workgroupBarrier();
  return sum;
}

fn scan_weight(value: f32, lane: u32) -> f32 {
  scan_weights[lane] = value;
  for (var step = 1u; step < threads; step *= 2u) {
    workgroupBarrier();
    var sum = scan_weights[lane];
    if (lane >= step) {
      sum += scan_weights[lane - step];
    }
    workgroupBarrier();
    scan_weights[lane] = sum;
  }
  let sum = scan_weights[lane];
  workgroupBarrier();
  return sum;
}
