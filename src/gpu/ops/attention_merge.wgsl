// The splits of a decode step's attention, put together: out [heads · head_dim].
// use: state
// use: splits
// use: merge_partials

override threads: u32 = 64;

struct Params {
  heads: u32,
  head_dim: u32,
  splits: u32,
  window: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let merge = Merge(params.heads, params.head_dim, params.splits, params.window);
  let i = id.x * threads + thread;
  if (i < params.heads * params.head_dim / 4u) {
    out[i] = merged(merge, i);
  }
}
