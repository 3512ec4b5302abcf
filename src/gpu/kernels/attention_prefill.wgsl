// Attention of a block of tokens against the cache, which holds the block's own keys and values already. Online softmax
// over tiles of 64 keys; no score is kept.
//
// A row is one query head of one token; the rows of one kv head are numbered token by token, so that neighbours share
// keys and values. A team of 32 threads has four rows, one to a vector component. For the scores a thread takes two keys
// of the tile, read straight from the cache, against the four rows in workgroup memory; for the values it takes eight
// dims of all keys (or of every n-th, where a head has fewer than 32 chunks).
// use: state
// use: kv_cache
// use: heads = four
// use: soft_cap

override teams: u32 = 2;
override head_dim: u32 = 64;

const kTeam: u32 = 32;
const kRows: u32 = 4;
const kTile: u32 = 64;
const kLow: f32 = -1e30;  // below any score

struct Params {
  tokens: u32,
  heads: u32,
  kv_heads: u32,
  capacity: u32,
  window: u32,        // 0: all keys are seen
  first: u32,         // position of token 0, counted from …
  follow_state: u32,  // … state.position (1) or from zero (0)
  scale: f32,
  softcap: f32,       // 0: none
  sinks: u32,         // 1: one logit a head joins the softmax
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> q: array<f32>;  // [tokens, heads · head_dim], rotated
@group(0) @binding(3) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> weights: array<f32>;  // q norm, k norm [head_dim] each, sinks [heads]
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;  // as q

var<workgroup> query: array<vec4<f32>, teams * head_dim>;  // [team][dim], times the scale
var<workgroup> scores: array<vec4<f32>, teams * kTile>;
var<workgroup> shares: array<vec4<f32>, teams * kTile>;    // exp(score - max)
var<workgroup> maxima: array<vec4<f32>, teams * 8u>;

fn slot_of(key: u32) -> u32 {
  return key % params.capacity;
}

fn add_scores(key: vec2<f32>, at: u32, score: vec4<f32>) -> vec4<f32> {
  return score + query[at] * key.x + query[at + 1u] * key.y;
}

@compute @workgroup_size(teams * kTeam)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let team = thread / kTeam;
  let lane = thread % kTeam;
  let chunks = head_dim / 8u;
  let kv_head = id.y;
  let share = params.heads / params.kv_heads;
  let rows = params.tokens * share;
  // The last tokens see the most keys: their workgroups start first.
  let first_row = (count.x - 1u - id.x) * teams * kRows;
  let last_row = min(first_row + teams * kRows, rows) - 1u;
  let start = params.first + params.follow_state * state.position;
  let newest = start + last_row / share;
  let eldest = start + first_row / share;  // token of the first row
  let oldest = select(0u, eldest + 1u - params.window, params.window != 0u && eldest + 1u > params.window);

  let row = vec4<u32>(first_row + team * kRows) + vec4<u32>(0u, 1u, 2u, 3u);
  let held = min(row, vec4<u32>(rows - 1u));  // rows past the end repeat the last one and store nothing
  let position = vec4<u32>(start) + held / share;
  let head = vec4<u32>(kv_head * share) + held % share;
  let base = ((held / share) * params.heads + head) * head_dim;
  for (var d = lane; d < head_dim; d += kTeam) {
    query[team * head_dim + d] =
        vec4<f32>(q[base.x + d], q[base.y + d], q[base.z + d], q[base.w + d]) * params.scale;
  }
  var highest = vec4<f32>(kLow);
  var sum = vec4<f32>(0.0);
  let parts = kTeam / chunks;  // of the tile's keys, when the values are mixed
  let part = lane / chunks;
  let chunk = lane % chunks;
  if (params.sinks == 1u) {
    let at = vec4<u32>(2u * head_dim) + head;
    highest = vec4<f32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]);
    sum = vec4<f32>(select(0.0, 1.0, part == 0u));
  }
  var m0 = vec4<f32>(0.0);  // of dim 8·chunk + 0, four rows; …
  var m1 = vec4<f32>(0.0);
  var m2 = vec4<f32>(0.0);
  var m3 = vec4<f32>(0.0);
  var m4 = vec4<f32>(0.0);
  var m5 = vec4<f32>(0.0);
  var m6 = vec4<f32>(0.0);
  var m7 = vec4<f32>(0.0);
  workgroupBarrier();

  for (var tile = oldest; tile <= newest; tile += kTile) {
    let keys = vec2<u32>(tile + lane, tile + lane + kTeam);
    let slots = vec2<u32>(slot_of(min(keys.x, newest)), slot_of(min(keys.y, newest)));
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    let keys_at = key_index(kv_head, 0u, 0u, chunks, params.capacity);
    for (var c = 0u; c < chunks; c++) {
      let a = cache[keys_at + c * params.capacity + slots.x];
      let b = cache[keys_at + c * params.capacity + slots.y];
      let at = team * head_dim + c * 8u;
      s0 = add_scores(unpack2x16float(a.x), at, s0);
      s1 = add_scores(unpack2x16float(b.x), at, s1);
      s0 = add_scores(unpack2x16float(a.y), at + 2u, s0);
      s1 = add_scores(unpack2x16float(b.y), at + 2u, s1);
      s0 = add_scores(unpack2x16float(a.z), at + 4u, s0);
      s1 = add_scores(unpack2x16float(b.z), at + 4u, s1);
      s0 = add_scores(unpack2x16float(a.w), at + 6u, s0);
      s1 = add_scores(unpack2x16float(b.w), at + 6u, s1);
    }
    if (params.softcap != 0.0) {
      s0 = soft_cap(s0, params.softcap);
      s1 = soft_cap(s1, params.softcap);
    }
    // A row sees the keys up to its own position, from the start of its window.
    let window = vec4<u32>(select(0xffffffffu, params.window, params.window != 0u));
    let sees0 = (vec4<u32>(keys.x) <= position) & (position - min(vec4<u32>(keys.x), position) < window);
    let sees1 = (vec4<u32>(keys.y) <= position) & (position - min(vec4<u32>(keys.y), position) < window);
    s0 = select(vec4<f32>(kLow), s0, sees0);
    s1 = select(vec4<f32>(kLow), s1, sees1);
    scores[team * kTile + lane] = s0;
    scores[team * kTile + kTeam + lane] = s1;
    workgroupBarrier();
    if (lane < 8u) {
      var most = scores[team * kTile + lane];
      for (var i = 8u; i < kTile; i += 8u) {
        most = max(most, scores[team * kTile + i + lane]);
      }
      maxima[team * 8u + lane] = most;
    }
    workgroupBarrier();
    var most = highest;
    for (var i = 0u; i < 8u; i++) {
      most = max(most, maxima[team * 8u + i]);
    }
    shares[team * kTile + lane] = select(vec4<f32>(0.0), exp(s0 - most), sees0);
    shares[team * kTile + kTeam + lane] = select(vec4<f32>(0.0), exp(s1 - most), sees1);
    let rescale = exp(highest - most);
    highest = most;
    workgroupBarrier();

    sum *= rescale;
    m0 *= rescale;
    m1 *= rescale;
    m2 *= rescale;
    m3 *= rescale;
    m4 *= rescale;
    m5 *= rescale;
    m6 *= rescale;
    m7 *= rescale;
    if (part < parts) {
      let values_at = value_index(kv_head, 0u, chunk, params.kv_heads, chunks, params.capacity);
      let end = min(kTile, newest + 1u - tile);
      var slot = slot_of(tile + part);
      for (var i = part; i < end; i += parts) {
        let value = cache[values_at + slot * chunks];
        let p = shares[team * kTile + i];
        sum += p;
        let a = unpack2x16float(value.x);
        let b = unpack2x16float(value.y);
        let c = unpack2x16float(value.z);
        let d = unpack2x16float(value.w);
        m0 += p * a.x;
        m1 += p * a.y;
        m2 += p * b.x;
        m3 += p * b.y;
        m4 += p * c.x;
        m5 += p * c.y;
        m6 += p * d.x;
        m7 += p * d.y;
        slot += parts;
        slot -= select(0u, params.capacity, slot >= params.capacity);
      }
    }
  }

  // Parts of the keys come together through `query`, which nobody needs any more.
  for (var other = 1u; other < parts; other++) {
    workgroupBarrier();
    let at = team * head_dim + chunk * 8u;
    if (part == other) {
      query[at] = m0;
      query[at + 1u] = m1;
      query[at + 2u] = m2;
      query[at + 3u] = m3;
      query[at + 4u] = m4;
      query[at + 5u] = m5;
      query[at + 6u] = m6;
      query[at + 7u] = m7;
      if (chunk == 0u) {
        maxima[team * 8u] = sum;
      }
    }
    workgroupBarrier();
    if (part == 0u) {
      m0 += query[at];
      m1 += query[at + 1u];
      m2 += query[at + 2u];
      m3 += query[at + 3u];
      m4 += query[at + 4u];
      m5 += query[at + 5u];
      m6 += query[at + 6u];
      m7 += query[at + 7u];
      sum += maxima[team * 8u];
    }
  }
  if (part == 0u) {
    let inverse = 1.0 / sum;
    for (var r = 0u; r < kRows; r++) {
      if (row[r] < rows) {
        let at = (base[r] + chunk * 8u) / 4u;
        out[at] = vec4<f32>(m0[r], m1[r], m2[r], m3[r]) * inverse[r];
        out[at + 1u] = vec4<f32>(m4[r], m5[r], m6[r], m7[r]) * inverse[r];
      }
    }
  }
}
