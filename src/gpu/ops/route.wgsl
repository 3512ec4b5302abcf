// The k experts with the highest scores, and the softmax of their scores: a workgroup a token.
// use: index
// use: top_experts

override threads: u32 = 64;

struct Params {
  tokens: u32,
  experts: u32,
  k: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> scores: array<f32>;      // [tokens, experts]
@group(0) @binding(2) var<storage, read_write> out: array<f32>;  // [tokens, 2k]: numbers, then weights

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let token = workgroup_index(id, count);
  if (token >= params.tokens) {
    return;
  }
  prepare_choice(lane);
  for (var e = lane; e < params.experts; e += threads) {
    expert_scores[e] = scores[token * params.experts + e];
  }
  workgroupBarrier();
  choose_experts(lane, threads, params.experts, params.k);
  workgroupBarrier();
  if (lane < params.k) {
    out[token * 2u * params.k + lane] = f32(chosen_experts[lane]);
    out[token * 2u * params.k + params.k + lane] = chosen_weight(lane, params.k);
  }
}
