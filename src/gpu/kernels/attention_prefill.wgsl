// Attention of a block of tokens against the cache, which holds the block's own keys and values already. Online softmax
// over tiles of 64 keys; no score is kept.
//
// A row is one query head of one token; the rows of one kv head are numbered token by token, so that neighbours share
// keys and values. A team of 32 threads has four rows, one to a vector component. For the scores a thread takes two keys
// of the tile, read straight from the cache, against the four rows in workgroup memory; for the values it takes eight
// dims of all keys (or of every n-th, where a head has fewer than 32 chunks). `key_parts` teams share four rows and take
// turns with the tiles.
// use: state
// use: kv_cache
// use: heads = four
// use: soft_cap
// use: eight

override teams: u32 = 2;      // of four rows each, in a workgroup
override key_parts: u32 = 1;  // teams that share their rows
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

var<workgroup> query: array<Heads, teams * head_dim>;                // [team][dim], times the scale
var<workgroup> scores: array<Heads, teams * key_parts * kTile>;
var<workgroup> shares: array<Heads, teams * key_parts * kTile>;      // exp(score - max)
var<workgroup> maxima: array<Heads, teams * key_parts * 8u>;

struct TwoScores {
  a: Heads,
  b: Heads,
}

fn add_scores(s: TwoScores, a: vec4<u32>, b: vec4<u32>, at: u32) -> TwoScores {
  let chunk = query_chunk(at);
  return TwoScores(s.a + dot_chunk(a, chunk), s.b + dot_chunk(b, chunk));
}

// The scores of two keys, whose chunk 0 lies at x and y of the cache, for the rows at `at` of `query`.
fn two_scores(x: u32, y: u32, at: u32) -> TwoScores {
  let chunks = head_dim / 8u;
  let step = params.capacity;
  var s = TwoScores(Heads(0.0), Heads(0.0));
  var c = 0u;
  for (; c + 4u <= chunks; c += 4u) {  // eight loads in flight
    let a0 = cache[x + c * step];
    let b0 = cache[y + c * step];
    let a1 = cache[x + (c + 1u) * step];
    let b1 = cache[y + (c + 1u) * step];
    let a2 = cache[x + (c + 2u) * step];
    let b2 = cache[y + (c + 2u) * step];
    let a3 = cache[x + (c + 3u) * step];
    let b3 = cache[y + (c + 3u) * step];
    s = add_scores(s, a0, b0, at + c * 8u);
    s = add_scores(s, a1, b1, at + c * 8u + 8u);
    s = add_scores(s, a2, b2, at + c * 8u + 16u);
    s = add_scores(s, a3, b3, at + c * 8u + 24u);
  }
  for (; c < chunks; c++) {
    s = add_scores(s, cache[x + c * step], cache[y + c * step], at + c * 8u);
  }
  return s;
}

// The slot of the tile's i-th key, or of the last there is. A ring has at least as many slots as a tile has keys.
fn slot_at(slot: u32, i: u32, last: u32) -> u32 {
  let next = slot + min(i, last);
  return next - select(0u, params.capacity, next >= params.capacity);
}

fn share_at(tile_shares: u32, i: u32) -> Heads {
  return select(Heads(0.0), shares[tile_shares + min(i, kTile - 1u)], i < kTile);
}

// Mixes the values of a tile into m: every `parts`-th key from `part` on. chunk_at: this thread's chunk of slot 0.
fn mix_tile(m: EightHeads, chunk_at: u32, slot: u32, last: u32, part: u32, parts: u32, tile_shares: u32) -> EightHeads {
  let chunks = head_dim / 8u;
  var mixed = m;
  for (var i = part; i <= last; i += 8u * parts) {  // eight loads in flight
    let v0 = cache[chunk_at + slot_at(slot, i, last) * chunks];
    let v1 = cache[chunk_at + slot_at(slot, i + parts, last) * chunks];
    let v2 = cache[chunk_at + slot_at(slot, i + 2u * parts, last) * chunks];
    let v3 = cache[chunk_at + slot_at(slot, i + 3u * parts, last) * chunks];
    let v4 = cache[chunk_at + slot_at(slot, i + 4u * parts, last) * chunks];
    let v5 = cache[chunk_at + slot_at(slot, i + 5u * parts, last) * chunks];
    let v6 = cache[chunk_at + slot_at(slot, i + 6u * parts, last) * chunks];
    let v7 = cache[chunk_at + slot_at(slot, i + 7u * parts, last) * chunks];
    mixed = mix_in(mixed, share_at(tile_shares, i), v0);
    mixed = mix_in(mixed, share_at(tile_shares, i + parts), v1);
    mixed = mix_in(mixed, share_at(tile_shares, i + 2u * parts), v2);
    mixed = mix_in(mixed, share_at(tile_shares, i + 3u * parts), v3);
    mixed = mix_in(mixed, share_at(tile_shares, i + 4u * parts), v4);
    mixed = mix_in(mixed, share_at(tile_shares, i + 5u * parts), v5);
    mixed = mix_in(mixed, share_at(tile_shares, i + 6u * parts), v6);
    mixed = mix_in(mixed, share_at(tile_shares, i + 7u * parts), v7);
  }
  return mixed;
}

fn leave(m: EightHeads, at: u32) {
  query[at] = m.a;
  query[at + 1u] = m.b;
  query[at + 2u] = m.c;
  query[at + 3u] = m.d;
  query[at + 4u] = m.e;
  query[at + 5u] = m.f;
  query[at + 6u] = m.g;
  query[at + 7u] = m.h;
}

fn plus(m: EightHeads, n: EightHeads) -> EightHeads {
  return EightHeads(m.a + n.a, m.b + n.b, m.c + n.c, m.d + n.d, m.e + n.e, m.f + n.f, m.g + n.g, m.h + n.h);
}

// A row sees the keys up to its own position, from the start of its window.
fn sees(key: u32, position: vec4<u32>) -> vec4<bool> {
  let window = vec4<u32>(select(0xffffffffu, params.window, params.window != 0u));
  let k = vec4<u32>(key);
  return (k <= position) & (position - min(k, position) < window);
}

@compute @workgroup_size(teams * key_parts * kTeam)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let lane = thread % kTeam;
  let key_part = thread / kTeam % key_parts;
  let team = thread / kTeam / key_parts;
  let own = thread / kTeam * kTile;  // this team's scores and shares
  let own_max = thread / kTeam * 8u;
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
  for (var d = lane + key_part * kTeam; d < head_dim; d += kTeam * key_parts) {
    query[team * head_dim + d] =
        vec4<f32>(q[base.x + d], q[base.y + d], q[base.z + d], q[base.w + d]) * params.scale;
  }
  let parts = kTeam / chunks;  // of a tile's keys, when the values are mixed
  let part = lane / chunks;
  let chunk = lane % chunks;
  var highest = vec4<f32>(kLow);
  var sum = vec4<f32>(0.0);  // of this lane's keys
  if (params.sinks == 1u && key_part == 0u) {
    let at = vec4<u32>(2u * head_dim) + head;
    highest = vec4<f32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]);
    sum = vec4<f32>(select(0.0, 1.0, lane == 0u));
  }
  var mixed = no_mix();
  workgroupBarrier();

  for (var turn = oldest; turn <= newest; turn += kTile * key_parts) {
    let tile = turn + key_part * kTile;
    let there = min(tile, newest);  // past the end: the newest key again, seen by no row
    let slot = there % params.capacity;
    let last = min(newest - there, kTile - 1u);
    let keys_at = key_index(kv_head, 0u, 0u, chunks, params.capacity);
    let two = two_scores(keys_at + slot_at(slot, lane, last), keys_at + slot_at(slot, lane + kTeam, last),
                         team * head_dim);
    var s0 = two.a;
    var s1 = two.b;
    if (params.softcap != 0.0) {
      s0 = soft_cap(s0, params.softcap);
      s1 = soft_cap(s1, params.softcap);
    }
    let sees0 = sees(tile + lane, position);
    let sees1 = sees(tile + lane + kTeam, position);
    s0 = select(vec4<f32>(kLow), s0, sees0);
    s1 = select(vec4<f32>(kLow), s1, sees1);
    scores[own + lane] = s0;
    scores[own + kTeam + lane] = s1;
    workgroupBarrier();
    if (lane < 8u) {
      var most = scores[own + lane];
      for (var i = 8u; i < kTile; i += 8u) {
        most = max(most, scores[own + i + lane]);
      }
      maxima[own_max + lane] = most;
    }
    workgroupBarrier();
    var most = highest;
    for (var i = 0u; i < 8u; i++) {
      most = max(most, maxima[own_max + i]);
    }
    let p0 = select(vec4<f32>(0.0), exp(s0 - most), sees0);
    let p1 = select(vec4<f32>(0.0), exp(s1 - most), sees1);
    shares[own + lane] = p0;
    shares[own + kTeam + lane] = p1;
    let rescale = exp(highest - most);
    highest = most;
    sum = sum * rescale + p0 + p1;
    mixed = scaled(mixed, rescale);
    workgroupBarrier();
    if (part < parts && tile <= newest) {
      let chunk_at = value_index(kv_head, 0u, chunk, params.kv_heads, chunks, params.capacity);
      mixed = mix_tile(mixed, chunk_at, slot, last, part, parts, own);
    }
  }

  // Parts come together through `query` and `scores`, which nobody needs any more: lanes' sums, then parts of a tile's
  // keys inside a team, then teams that share rows.
  scores[own + lane] = sum;
  workgroupBarrier();
  sum = vec4<f32>(0.0);
  for (var i = 0u; i < kTeam; i++) {
    sum += scores[own + i];
  }
  for (var other = 1u; other < parts * key_parts; other++) {
    let at = team * head_dim + chunk * 8u;
    workgroupBarrier();
    if (key_part * parts + part == other && part < parts) {
      leave(mixed, at);
      if (chunk == 0u) {
        maxima[team * key_parts * 8u] = highest;
        maxima[team * key_parts * 8u + 1u] = sum;
      }
    }
    workgroupBarrier();
    if (key_part == 0u && part == 0u) {
      let most = max(highest, maxima[team * key_parts * 8u]);
      let mine = exp(highest - most);
      let theirs = exp(maxima[team * key_parts * 8u] - most);
      mixed = plus(scaled(mixed, mine), scaled(query_chunk(at), theirs));
      // A team's lanes know its whole sum, so that it counts once a team.
      sum = sum * mine + select(vec4<f32>(0.0), maxima[team * key_parts * 8u + 1u] * theirs, other % parts == 0u);
      highest = most;
    }
  }
  if (key_part == 0u && part == 0u) {
    let inverse = 1.0 / sum;
    for (var r = 0u; r < kRows; r++) {
      if (row[r] < rows) {
        let at = (base[r] + chunk * 8u) / 4u;
        out[at] = vec4<f32>(mixed.a[r], mixed.b[r], mixed.c[r], mixed.d[r]) * inverse[r];
        out[at + 1u] = vec4<f32>(mixed.e[r], mixed.f[r], mixed.g[r], mixed.h[r]) * inverse[r];
      }
    }
  }
}
