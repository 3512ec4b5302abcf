// Sums over threads: of a workgroup, of a team within it.

// snippet: reduce = plain
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

// snippet: reduce = subgroup
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

// snippet: team_sum = plain
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

// snippet: team_sum = subgroup
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

// snippet: group_sum = plain
// Σ over a workgroup of lanes · groups threads, the same in every thread: put, a barrier, get. `which` is 0 or 1: two sums
// may be under way. Call in uniform control flow.
override subgroup: u32 = 1;
var<workgroup> group_sums: array<f32, 2u * lanes * groups>;
var<workgroup> group_parts: array<f32, 32>;

fn group_sum_put(value: f32, thread: u32, which: u32) {
  group_sums[which * lanes * groups + thread] = value;
}
fn group_sum_get(thread: u32, which: u32) -> f32 {
  if (thread < 16u) {
    var sum = 0.0;
    for (var i = thread; i < lanes * groups; i += 16u) {
      sum += group_sums[which * lanes * groups + i];
    }
    group_parts[which * 16u + thread] = sum;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < 16u; i++) {
    total += group_parts[which * 16u + i];
  }
  return total;
}

// snippet: group_sum = subgroup
enable subgroups;
diagnostic(off, subgroup_uniformity);

// Σ over a workgroup of lanes · groups threads, the same in every thread: put, a barrier, get. `which` is 0 or 1: two sums
// may be under way. Call in uniform control flow.
override subgroup: u32 = 32;  // threads of one; consecutive threads
var<workgroup> group_parts: array<f32, 2u * ((lanes * groups + subgroup - 1u) / subgroup)>;

fn group_sum_put(value: f32, thread: u32, which: u32) {
  let count = (lanes * groups + subgroup - 1u) / subgroup;
  let part = subgroupAdd(value);
  if (thread % subgroup == 0u) {
    group_parts[which * count + thread / subgroup] = part;
  }
}
fn group_sum_get(thread: u32, which: u32) -> f32 {
  let count = (lanes * groups + subgroup - 1u) / subgroup;
  var total = 0.0;
  for (var i = 0u; i < count; i++) {
    total += group_parts[which * count + i];
  }
  return total;
}
