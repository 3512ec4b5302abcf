// Attention of a block of tokens against the cache, which holds the block's own keys and values already. Online softmax
// over tiles of 64 keys; no score is kept.
//
// A row is one query head of one token; the rows of one kv head are numbered token by token, so that neighbours share
// keys and values. A team of 32 threads has four rows, one to a vector component. For the scores a thread takes two keys
// of the tile, read straight from the cache, against the four rows in workgroup memory; for the values it takes eight
// dims of all keys (or of every n-th, where a head has fewer than 32 chunks; where it has more, as many workgroups share
// out its dims and each makes the scores anew). `key_parts` teams share four rows and take
// turns with the tiles. Tiles are pages, so that what is added up with what depends on the positions alone, and not on
// where a block begins.
// use: paged_state
// use: kv_cache
// use: heads = four
// use: soft_cap = exp
// use: eight
// use: prefill_tile

override teams: u32 = 2;      // of four rows each, in a workgroup
override key_parts: u32 = 1;  // teams that share their rows
override head_dim: u32 = 64;

const kTeam: u32 = 32;
const kRows: u32 = 4;
const kLow: f32 = -1e30;  // below any score

struct Params {
  tokens: u32,
  heads: u32,
  kv_heads: u32,
  table: u32,         // where the pages of its group begin among the state's
  window: u32,        // 0: all keys up to the last that is seen
  ahead: u32,         // keys behind a token that it sees; such a block is a whole text
  first: u32,         // position of token 0, counted from …
  follow_state: u32,  // … state.position (1) or from zero (0)
  scale: f32,
  softcap: f32,       // 0: none
  sinks: u32,         // 1: one logit per head joins the softmax
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> q: array<f32>;  // [tokens, heads · head_dim], rotated
@group(0) @binding(3) var<storage, read> cache: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> weights: array<f32>;  // q norm, k norm [head_dim] each, sinks [heads]
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;  // as q

var<workgroup> query: array<Heads, teams * head_dim>;                // [team][dim], times the scale
var<workgroup> scores: array<Heads, teams * key_parts * kTile>;
var<workgroup> probs: array<Heads, teams * key_parts * kTile>;      // exp(score - max), times the value's step
var<workgroup> maxima: array<Heads, teams * key_parts * 8u>;

@compute @workgroup_size(teams * key_parts * kTeam)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let lane = thread % kTeam;
  let key_part = thread / kTeam % key_parts;
  let team = thread / kTeam / key_parts;
  let own = thread / kTeam * kTile;  // this team's scores and probs
  let own_max = thread / kTeam * 8u;
  let chunks = head_dim / 8u;
  let kv_head = id.y;
  let heads_per_kv = params.heads / params.kv_heads;
  let rows = params.tokens * heads_per_kv;
  // The last tokens see the most keys: their workgroups start first.
  let first_row = (count.x - 1u - id.x) * teams * kRows;
  let last_row = min(first_row + teams * kRows, rows) - 1u;
  let start = params.first + params.follow_state * state.position;
  let newest = min(start + last_row / heads_per_kv + params.ahead, start + params.tokens - 1u);
  let eldest = start + first_row / heads_per_kv;  // token of the first row
  let oldest = select(0u, eldest + 1u - params.window, params.window != 0u && eldest + 1u > params.window);

  let row = vec4<u32>(first_row + team * kRows) + vec4<u32>(0u, 1u, 2u, 3u);
  let held = min(row, vec4<u32>(rows - 1u));  // rows past the end repeat the last one and store nothing
  let position = vec4<u32>(start) + held / heads_per_kv;
  let head = vec4<u32>(kv_head * heads_per_kv) + held % heads_per_kv;
  let base = ((held / heads_per_kv) * params.heads + head) * head_dim;
  for (var d = lane + key_part * kTeam; d < head_dim; d += kTeam * key_parts) {
    query[team * head_dim + d] =
        vec4<f32>(q[base.x + d], q[base.y + d], q[base.z + d], q[base.w + d]) * params.scale;
  }
  let lanes = min(chunks, kTeam);
  let parts = kTeam / lanes;  // of a tile's keys, when the values are mixed
  let chunk = id.z * kTeam + lane % lanes;
  let part = select(lane / lanes, parts, chunk >= chunks);  // parts: nothing
  var highest = vec4<f32>(kLow);
  var sum = vec4<f32>(0.0);  // of this lane's keys
  if (params.sinks == 1u && key_part == 0u) {
    let at = vec4<u32>(2u * head_dim) + head;
    highest = vec4<f32>(weights[at.x], weights[at.y], weights[at.z], weights[at.w]);
    sum = vec4<f32>(select(0.0, 1.0, lane == 0u));
  }
  var mixed = no_mix();
  workgroupBarrier();

  for (var turn = oldest - oldest % (kTile * key_parts); turn <= newest; turn += kTile * key_parts) {
    let tile = turn + key_part * kTile;
    // A tile that no row sees anything of is read from the newest page.
    let inside = tile <= newest && tile + kTile > oldest;
    let there = select(newest - newest % kTile, tile, inside);
    let page = state.pages[params.table + there / kPage] * page_size(params.kv_heads, chunks);
    let last = min(newest - there, kTile - 1u);
    let keys_at = key_index(page, kv_head, 0u, 0u, chunks);
    let slot0 = min(lane, last);
    let slot1 = min(lane + kTeam, last);
    let step0 = value_step(page, kv_head, slot0);
    let step1 = value_step(page, kv_head, slot1);
    let two = two_scores(keys_at + slot0, keys_at + slot1, team * head_dim);
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
    // A step may be no number: it must not reach rows that do not see its key.
    probs[own + lane] = select(vec4<f32>(0.0), p0 * step0, sees0);
    probs[own + kTeam + lane] = select(vec4<f32>(0.0), p1 * step1, sees1);
    let rescale = exp(highest - most);
    highest = most;
    sum = sum * rescale + p0 + p1;
    mixed = scaled(mixed, rescale);
    workgroupBarrier();
    if (part < parts && inside) {
      let chunk_at = value_index(page, kv_head, 0u, chunk, params.kv_heads, chunks);
      mixed = mix_tile(mixed, chunk_at, last, part, parts, own);
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
      if (lane % lanes == 0u) {
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
