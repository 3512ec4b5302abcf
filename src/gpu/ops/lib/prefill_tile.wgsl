// attention_prefill's work on one tile of keys: scores of four rows, and the mix of the values.
const kTile: u32 = kPage;

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
  let step = kPage;
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

fn value_step(page: u32, kv_head: u32, slot: u32) -> f32 {
  let at = step_index(page, kv_head, slot, params.kv_heads, head_dim / 8u);
  return bitcast<f32>(cache[at / 4u][at % 4u]);
}

fn prob_at(tile_probs: u32, i: u32) -> Heads {
  return select(Heads(0.0), probs[tile_probs + min(i, kTile - 1u)], i < kTile);
}

// Mixes the values of a tile into m: every `parts`-th key from `part` on. chunk_at: this thread's chunk of the
// first.
fn mix_tile(m: EightHeads, chunk_at: u32, last: u32, part: u32, parts: u32, tile_probs: u32) -> EightHeads {
  let chunks = head_dim / 8u;
  var mixed = m;
  for (var i = part; i <= last; i += 8u * parts) {  // eight loads in flight
    let v0 = cache[chunk_at + min(i, last) * chunks];
    let v1 = cache[chunk_at + min(i + parts, last) * chunks];
    let v2 = cache[chunk_at + min(i + 2u * parts, last) * chunks];
    let v3 = cache[chunk_at + min(i + 3u * parts, last) * chunks];
    let v4 = cache[chunk_at + min(i + 4u * parts, last) * chunks];
    let v5 = cache[chunk_at + min(i + 5u * parts, last) * chunks];
    let v6 = cache[chunk_at + min(i + 6u * parts, last) * chunks];
    let v7 = cache[chunk_at + min(i + 7u * parts, last) * chunks];
    mixed = mix_in(mixed, prob_at(tile_probs, i), v0);
    mixed = mix_in(mixed, prob_at(tile_probs, i + parts), v1);
    mixed = mix_in(mixed, prob_at(tile_probs, i + 2u * parts), v2);
    mixed = mix_in(mixed, prob_at(tile_probs, i + 3u * parts), v3);
    mixed = mix_in(mixed, prob_at(tile_probs, i + 4u * parts), v4);
    mixed = mix_in(mixed, prob_at(tile_probs, i + 5u * parts), v5);
    mixed = mix_in(mixed, prob_at(tile_probs, i + 6u * parts), v6);
    mixed = mix_in(mixed, prob_at(tile_probs, i + 7u * parts), v7);
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

// A row sees the keys up to its own position and as many ahead as it may, from the start of its window. There are no
// keys behind the block's last: those of its page are no numbers.
fn sees(key: u32, position: vec4<u32>) -> vec4<bool> {
  let window = vec4<u32>(select(0xffffffffu, params.window, params.window != 0u));
  let k = vec4<u32>(key);
  let last = vec4<u32>(params.first + params.follow_state * state.position + params.tokens - 1u);
  return (k <= min(position + params.ahead, last)) & (position - min(k, position) < window);
}
