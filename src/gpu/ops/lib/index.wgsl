// Numbers workgroups of a grid that linear_grid() spread over x and y.
fn workgroup_index(id: vec3<u32>, count: vec3<u32>) -> u32 {
  return id.x + id.y * count.x;
}
