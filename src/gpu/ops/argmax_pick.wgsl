// Second half of the greedy choice: the best of the pairs is the next token. One workgroup.
// use: state
// use: sort_key
// use: best
// use: finish_token

override threads: u32 = 256;

struct Params {
  count: u32,    // pairs
  vocab: u32,
  advance: u32,  // tokens that this step added to the context
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> maxima: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> state: State;
@group(0) @binding(3) var<storage, read_write> out_tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> seen: array<u32>;

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) lane: u32) {
  let best = best_of_maxima(params.count, lane);
  if (lane == 0u) {
    // Nothing but NaN: the last token, as on the CPU.
    finish_token(select(best.y, params.vocab - 1u, best.x == 0u), params.advance);
  }
}
