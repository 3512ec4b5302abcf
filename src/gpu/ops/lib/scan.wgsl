// Sums of counts and weights over the threads of a workgroup of 256, up to and with each thread. They stay in
// count_sums and weight_sums until the next scan. Call in uniform control flow; waits on both sides.
var<workgroup> count_sums: array<u32, threads>;
var<workgroup> weight_sums: array<f32, threads>;
var<workgroup> row_counts: array<u32, 16>;
var<workgroup> row_weights: array<f32, 16>;

fn scan(count: u32, weight: f32, lane: u32) {
  count_sums[lane] = count;
  weight_sums[lane] = weight;
  workgroupBarrier();
  if (lane < 16u) {
    var counts = 0u;
    var weights = 0.0;
    for (var i = 0u; i < 16u; i++) {
      counts += count_sums[lane * 16u + i];
      weights += weight_sums[lane * 16u + i];
    }
    row_counts[lane] = counts;
    row_weights[lane] = weights;
  }
  workgroupBarrier();
  var counts = 0u;
  var weights = 0.0;
  for (var row = 0u; row < 16u; row++) {
    if (row < lane / 16u) {
      counts += row_counts[row];
      weights += row_weights[row];
    }
  }
  for (var i = 0u; i < 16u; i++) {
    if (i <= lane % 16u) {
      counts += count_sums[lane / 16u * 16u + i];
      weights += weight_sums[lane / 16u * 16u + i];
    }
  }
  workgroupBarrier();
  count_sums[lane] = counts;
  weight_sums[lane] = weights;
  workgroupBarrier();
}
