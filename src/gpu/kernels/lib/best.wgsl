// The best (key, id) of a workgroup of `threads`, a power of two. Call in uniform control flow; waits at its end.
var<workgroup> pairs: array<vec2<u32>, threads>;
const kNoPair: vec2<u32> = vec2<u32>(0u, 0xffffffffu);

fn workgroup_best(mine: vec2<u32>, lane: u32) -> vec2<u32> {
  pairs[lane] = mine;
  for (var half = threads / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half && better(pairs[lane + half], pairs[lane])) {
      pairs[lane] = pairs[lane + half];
    }
  }
  return workgroupUniformLoad(&pairs[0]);
}
