// What subgroups of a workgroup of 256 look like here: out[lane] = (size << 16) | the lane's place in its subgroup, and
// out[256 + lane] = the lane that is first in its subgroup.
enable subgroups;

@group(0) @binding(1) var<storage, read_write> out: array<u32, 512>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32, @builtin(subgroup_size) size: u32,
        @builtin(subgroup_invocation_id) place: u32) {
  out[lane] = (size << 16u) | place;
  out[256u + lane] = subgroupBroadcastFirst(lane);
}
