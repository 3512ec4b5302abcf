// Which experts tokens choose, how tokens are grouped by expert, and how the results are summed.

// snippet: top_experts
// Which k experts have the highest scores: ties go to the lower number. Scores lie in workgroup memory first.
const kMaxExperts = 256u;
const kMaxChosen = 32u;
var<workgroup> expert_scores: array<f32, kMaxExperts>;
var<workgroup> chosen_experts: array<u32, kMaxChosen>;

// Before the scores are put, or at the same time: scores that are no numbers choose somebody, too.
fn prepare_choice(thread: u32) {
  if (thread < kMaxChosen) {
    chosen_experts[thread] = 0u;
  }
}
// A barrier before, since scores must be there, and one after. `size`: threads of the workgroup.
fn choose_experts(thread: u32, size: u32, experts: u32, k: u32) {
  for (var e = thread; e < experts; e += size) {
    let own = expert_scores[e];
    var rank = 0u;
    for (var other = 0u; other < experts; other++) {
      let score = expert_scores[other];
      rank += select(0u, 1u, score > own || (score == own && other < e));
    }
    if (rank < k) {
      chosen_experts[rank] = e;
    }
  }
}
// A share of a softmax before it is divided; NaN goes through.
fn share_of(score: f32, highest: f32) -> f32 {
  let depth = score - highest;
  return exp(select(depth, -80.0, depth < -80.0));
}
// The softmax over the chosen ones' scores, or all `experts`' where that is not 0, of one of them.
fn chosen_weight(place: u32, k: u32, experts: u32) -> f32 {
  let highest = expert_scores[chosen_experts[0]];
  var sum = 0.0;
  if (experts == 0u) {
    for (var i = 0u; i < k; i++) {
      sum += share_of(expert_scores[chosen_experts[i]], highest);
    }
  }
  for (var e = 0u; e < experts; e++) {
    sum += share_of(expert_scores[e], highest);
  }
  return share_of(expert_scores[chosen_experts[place]], highest) / sum;
}

// kernel: route
// The k experts with the highest scores, and their weights: a workgroup a token.
// use: index
// use: top_experts

override threads: u32 = 64;

struct Params {
  tokens: u32,
  experts: u32,
  k: u32,
  over_all: u32,     // 1: softmax over all experts, 0: over the chosen ones
  has_learned: u32,  // 1: `learned` multiplies the weights
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> scores: array<f32>;      // [tokens, experts]
@group(0) @binding(2) var<storage, read> learned: array<f32>;     // [experts]
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [tokens, 2k]: numbers, then weights

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
    var weight = chosen_weight(lane, params.k, params.over_all * params.experts);
    if (params.has_learned == 1u) {
      weight *= learned[chosen_experts[lane]];
    }
    out[token * 2u * params.k + lane] = f32(chosen_experts[lane]);
    out[token * 2u * params.k + params.k + lane] = weight;
  }
}

// kernel: expert_map
// Groups the entries (token, place) of a route by expert, in the order of the entries, and cuts every expert's into tiles
// of at most tile_tokens. One workgroup; a thread an expert.
// use: top_experts

override threads: u32 = 256;  // at least kMaxExperts
const kChunk = 1024u;

struct Params {
  entries: u32,      // tokens · k
  k: u32,
  experts: u32,
  tile_tokens: u32,
  tiles: u32,        // room; tiles nobody needs get no entries
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> route: array<f32>;             // [tokens, 2k]
@group(0) @binding(2) var<storage, read_write> entries: array<u32>;     // [entries]: token · k + place
@group(0) @binding(3) var<storage, read_write> tiles: array<vec4<u32>>;  // expert, first entry, entries, where its rows are

var<workgroup> chunk: array<u32, kChunk>;
var<workgroup> counts: array<u32, kMaxExperts>;

fn read_chunk(first: u32, lane: u32) {
  workgroupBarrier();
  for (var i = lane; i < min(kChunk, params.entries - first); i += threads) {
    let entry = first + i;
    chunk[i] = u32(route[entry / params.k * 2u * params.k + entry % params.k]);
  }
  workgroupBarrier();
}

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) lane: u32) {
  var count = 0u;
  for (var first = 0u; first < params.entries; first += kChunk) {
    read_chunk(first, lane);
    for (var i = 0u; i < min(kChunk, params.entries - first); i++) {
      count += select(0u, 1u, chunk[i] == lane);
    }
  }
  if (lane < kMaxExperts) {
    counts[lane] = count;
  }
  workgroupBarrier();
  var at = 0u;    // of this expert's entries
  var tile = 0u;  // of its tiles
  for (var e = 0u; e < min(lane, params.experts); e++) {
    at += counts[e];
    tile += (counts[e] + params.tile_tokens - 1u) / params.tile_tokens;
  }
  for (var done = 0u; done < count; done += params.tile_tokens) {
    tiles[tile] = vec4<u32>(lane, at + done, min(params.tile_tokens, count - done), lane);
    tile++;
  }
  if (lane == params.experts - 1u) {
    for (; tile < params.tiles; tile++) {
      tiles[tile] = vec4<u32>(0u);
    }
  }
  for (var first = 0u; first < params.entries; first += kChunk) {
    read_chunk(first, lane);
    for (var i = 0u; i < min(kChunk, params.entries - first); i++) {
      if (chunk[i] == lane) {
        entries[at] = first + i;
        at++;
      }
    }
  }
}

// kernel: combine
// out = Σ weight · expert's output, over a token's experts in the order of its route.
// use: index

override threads: u32 = 256;

struct Params {
  tokens: u32,
  width: u32,
  k: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> experts: array<f32>;    // [tokens, k, width]
@group(0) @binding(2) var<storage, read> route: array<f32>;      // [tokens, 2k]
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [tokens, width]

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  if (i >= params.tokens * params.width) {
    return;
  }
  let token = i / params.width;
  let column = i % params.width;
  var sum = 0.0;
  for (var e = 0u; e < params.k; e++) {
    let weight = route[(token * 2u + 1u) * params.k + e];
    sum = fma(weight, experts[(token * params.k + e) * params.width + column], sum);
  }
  out[i] = sum;
}
