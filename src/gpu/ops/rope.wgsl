// The rotary embedding by itself: out = x with its pairs turned, for whoever wants to see what rope_store makes.
// use: index
// use: state
// use: rope_turn

override threads: u32 = 256;

struct Params {
  tokens: u32,  // from state.position on
  heads: u32,
  head_dim: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> x: array<f32>;  // [tokens, heads · head_dim]
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let pair = workgroup_index(id, count) * threads + lane;  // its partner is half a head further
  let pairs = params.head_dim / 2u;
  let row = params.heads * pairs;
  if (pair >= params.tokens * row) {
    return;
  }
  let turn = rope_turn(state.position + pair / row, pair % pairs, pairs);
  let low = pair / pairs * params.head_dim + pair % pairs;
  out[low] = x[low] * turn.x - x[low + pairs] * turn.y;
  out[low + pairs] = x[low + pairs] * turn.x + x[low] * turn.y;
}
