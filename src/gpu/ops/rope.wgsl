// The rotary embedding: by itself, and on the way into the cache.

// snippet: rope_rotation
// The rotation of pair i at a position, (cos, sin) times the rope's magnitude: the product of a coarse and a fine turn
// (rope_tables() in attention.h). `rope` holds fine [256][half], then coarse [⌈context / 256⌉][half]. Pair i is dims i
// and i + dims/2 of a head, or, past dims/2, two dims that do not turn (rope_pair).
fn rope_rotation(position: u32, i: u32, half: u32) -> vec2<f32> {
  let fine = rope[(position & 255u) * half + i];
  let coarse = rope[(256u + (position >> 8u)) * half + i];
  return vec2<f32>(coarse.x * fine.x - coarse.y * fine.y, coarse.y * fine.x + coarse.x * fine.y);
}

// Where pair i of a head of 2 · half dims lies, of which the first 2 · turned turn.
fn rope_pair(i: u32, half: u32, turned: u32) -> vec2<u32> {
  let low = select(i + turned, i, i < turned);
  return vec2<u32>(low, low + select(half - turned, turned, i < turned));
}

// kernel: rope
// The rotary embedding by itself: out = x with its pairs turned, for queries whose keys are in the cache already, and
// for whoever wants to see what rope_store makes.
// use: index
// use: state
// use: rope_rotation

override threads: u32 = 256;

struct Params {
  tokens: u32,  // from state.position on
  heads: u32,
  head_dim: u32,
  dims: u32,    // of a head, that turn
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> x: array<f32>;  // [tokens, heads · head_dim]
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let pair = workgroup_index(id, count) * threads + lane;
  let pairs = params.head_dim / 2u;
  let row = params.heads * pairs;
  if (pair >= params.tokens * row) {
    return;
  }
  let turn = rope_rotation(state.position + pair / row, pair % pairs, pairs);
  let at = rope_pair(pair % pairs, pairs, params.dims / 2u) + pair / pairs * params.head_dim;
  out[at.x] = x[at.x] * turn.x - x[at.y] * turn.y;
  out[at.y] = x[at.y] * turn.x + x[at.x] * turn.y;
}

// snippet: quads = two
// Pairs of pairs of a thread of rope_store: heads of up to 4 · 32 · kQuads dims.
const kQuads: u32 = 2;

// snippet: quads = four
const kQuads: u32 = 4;

// kernel: rope_store
// From raw projections to what attention reads: q and k through the per-head RMS norm (if the model has one) and the
// rotary embedding; q goes out as f32, k and v go to the cache. 32 threads, a team, take one head of one token.
// use: index
// use: paged_state
// use: kv_cache
// use: pack_f16
// use: rope_rotation
// use: quads = two | four

override threads: u32 = 256;
const kTeam: u32 = 32;
const kChunks: u32 = kQuads / 2;  // of a value, a thread

struct Params {
  tokens: u32,
  heads: u32,
  kv_heads: u32,
  head_dim: u32,
  table: u32,         // where the pages of its group begin among the state's
  first: u32,         // position of row 0, counted from …
  follow_state: u32,  // … state.position (1) or from zero (0)
  norm: u32,          // 1: per-head norm of q and k
  eps: f32,
  norm_offset: f32,
  q_offset: u32,      // where row 0 starts, and from row to row: in f32
  q_stride: u32,
  k_offset: u32,
  k_stride: u32,
  v_offset: u32,
  v_stride: u32,
  dims: u32,          // of a head, that turn: a multiple of 4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> q: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> k: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> v: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> weights: array<vec2<f32>>;  // q norm [head_dim], k norm [head_dim], …
@group(0) @binding(6) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read_write> cache: array<u32>;
@group(0) @binding(8) var<storage, read_write> q_out: array<vec2<f32>>;  // [tokens, heads · head_dim]

var<workgroup> squares: array<u32, threads>;  // sums of them for q and k, for v the largest dim of a chunk; as bits

fn load(kind: u32, at: u32) -> vec2<f32> {
  if (kind == 0u) {
    return q[at];
  }
  return k[at];
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let team = thread / kTeam;
  let lane = thread % kTeam;
  let rows = params.heads + 2u * params.kv_heads;
  let item = workgroup_index(id, count) * (threads / kTeam) + team;
  let here = item < params.tokens * rows;
  let token = item / rows;
  var head = item % rows;
  var kind = 0u;  // 0: q, 1: k, 2: v
  if (head >= params.heads) {
    head -= params.heads;
    kind = 1u + head / params.kv_heads;
    head %= params.kv_heads;
  }
  // In vec2 from here on: this thread's pairs are 2j, 2j + 1, and `at` is where they and their partners lie.
  let dim2 = params.head_dim / 2u;
  let quads = params.head_dim / 4u;
  let turned = params.dims / 4u;
  var source = (params.q_offset + token * params.q_stride) / 2u + head * dim2;
  if (kind == 1u) {
    source = (params.k_offset + token * params.k_stride) / 2u + head * dim2;
  } else if (kind == 2u) {
    source = (params.v_offset + token * params.v_stride) / 2u + head * dim2;
  }

  var low: array<vec2<f32>, kQuads>;
  var high: array<vec2<f32>, kQuads>;
  var sum = 0.0;
  for (var n = 0u; n < kQuads; n++) {
    let j = lane + n * kTeam;
    if (here && kind != 2u && j < quads) {
      let at = rope_pair(j, quads, turned);
      low[n] = load(kind, source + at.x);
      high[n] = load(kind, source + at.y);
      sum += dot(low[n], low[n]) + dot(high[n], high[n]);
    }
  }
  var value_first: array<vec4<f32>, kChunks>;
  var value_second: array<vec4<f32>, kChunks>;
  var own_most = 0u;
  let chunks = params.head_dim / 8u;
  for (var n = 0u; n < kChunks; n++) {
    let chunk = lane + n * kTeam;
    if (here && kind == 2u && chunk < chunks) {
      let at = source + 4u * chunk;
      value_first[n] = vec4<f32>(v[at], v[at + 1u]);
      value_second[n] = vec4<f32>(v[at + 2u], v[at + 3u]);
      own_most = max(own_most, largest(value_first[n], value_second[n]));
    }
  }
  squares[thread] = select(bitcast<u32>(sum), own_most, kind == 2u);
  workgroupBarrier();
  if (params.norm == 1u) {
    if (kind != 2u) {
      var total = 0.0;
      for (var i = 0u; i < kTeam; i++) {
        total += bitcast<f32>(squares[team * kTeam + i]);
      }
      let factor = 1.0 / sqrt(total / f32(params.head_dim) + params.eps);
      for (var n = 0u; n < kQuads; n++) {
        let j = lane + n * kTeam;
        if (j < quads) {
          let at = rope_pair(j, quads, turned);
          low[n] *= factor * (params.norm_offset + weights[kind * dim2 + at.x]);
          high[n] *= factor * (params.norm_offset + weights[kind * dim2 + at.y]);
        }
      }
    }
  }
  if (!here) {
    return;
  }

  let position = params.first + params.follow_state * state.position + token;
  let page = state.pages[params.table + position / kPage] * page_size(params.kv_heads, chunks);
  let slot = position % kPage;
  if (kind == 2u) {
    var most = 0u;
    for (var i = 0u; i < min(chunks, kTeam); i++) {
      most = max(most, squares[team * kTeam + i]);
    }
    for (var n = 0u; n < kChunks; n++) {
      let chunk = lane + n * kTeam;
      if (chunk < chunks) {
        let packed = pack_value(value_first[n], value_second[n], inverse_step(most));
        let to = 4u * value_index(page, head, slot, chunk, params.kv_heads, chunks);
        cache[to] = packed.x;
        cache[to + 1u] = packed.y;
        cache[to + 2u] = packed.z;
        cache[to + 3u] = packed.w;
      }
    }
    if (lane == 0u) {
      cache[step_index(page, head, slot, params.kv_heads, chunks)] = step_of(most);
    }
    return;
  }
  for (var n = 0u; n < kQuads; n++) {
    let j = lane + n * kTeam;
    if (j >= quads) {
      break;
    }
    let even = rope_rotation(position, 2u * j, dim2);
    let odd = rope_rotation(position, 2u * j + 1u, dim2);
    let c = vec2<f32>(even.x, odd.x);
    let s = vec2<f32>(even.y, odd.y);
    let a = low[n] * c - high[n] * s;
    let b = high[n] * c + low[n] * s;
    let at = rope_pair(j, quads, turned);
    if (kind == 0u) {
      let to = (token * params.heads + head) * dim2;
      q_out[to + at.x] = a;
      q_out[to + at.y] = b;
      continue;
    }
    for (var side = 0u; side < 2u; side++) {
      let pair = at[side];  // of two dims; four pairs are a chunk
      let chunk = key_index(page, head, pair / 4u, slot, chunks);
      cache[chunk * 4u + pair % 4u] = pack_f16(select(a, b, side == 1u));
    }
  }
}
