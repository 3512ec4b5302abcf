// out[i] = in[i] in words of 16 bytes. Also the yardstick: its bandwidth is what other kernels are measured by.
// use: index

override threads: u32 = 256;
const kEach: u32 = 4;  // words a thread, `threads` apart

struct Params {
  count: u32,  // of 16-byte words
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> input: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let first = workgroup_index(id, count) * threads * kEach + lane;
  for (var k = 0u; k < kEach; k++) {
    let i = first + k * threads;
    if (i < params.count) {
      out[i] = input[i];
    }
  }
}
