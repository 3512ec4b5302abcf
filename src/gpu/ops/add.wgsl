// out[i] = a[i] + b[i], i < count.
// use: index

override threads: u32 = 256;
const kEach: u32 = 4;  // elements a thread, `threads` apart

struct Params {
  count: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(group, groups) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      out[i] = a[i] + b[i];
    }
  }
}
