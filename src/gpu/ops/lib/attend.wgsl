// Attention of one token over one split of its keys, for the query heads of `Heads`, which share keys and values. Threads
// meet in workgroup memory only; exchanging by subgroup shuffles was tried and was slower on the GPUs that have them.
//
// Keys are taken a tile of 64 at a time. For the scores, 32 neighbouring threads (a team) take two keys each and the
// teams share out the dims; for the values, `chunks` neighbouring threads take eight dims each and the groups they form
// share out the keys. Both are read into registers before anything waits, so a short split waits for memory once.
const kPartChunks: u32 = 4;   // chunks per team: head_dim is 8 · kPartChunks · (threads / kTeam) at most
const kGroupKeys: u32 = 8;    // keys of a tile a group: threads / chunks is at least kTile / kGroupKeys

override round_dims: u32 = 2;   // dims of a chunk added up at a time, a divisor of 8: more take more workgroup memory

var<workgroup> scratch: array<Heads, max(threads / kTeam * kTile, round_dims * (threads + 1u))>;
var<workgroup> scores: array<Heads, kTile>;
var<workgroup> probs: array<Heads, kTile>;         // exp(score - max)
var<workgroup> step_probs: array<Heads, kTile>;  // times the value's step
var<workgroup> maxima: array<Heads, kTile / 8u>;
var<workgroup> rescale: Heads;
var<workgroup> key_squares: array<f32, head_dim / 4u>;

var<private> keys_here: EightChunks;   // of this thread: keys lane and lane + 32, four chunks each
var<private> values_here: EightChunks; // eight keys, one chunk each
var<private> step_here: f32;           // of value `thread` of the tile
var<private> mixed: EightHeads;        // this thread's eight dims
var<private> sum: Heads;
var<private> highest: Heads;           // kept by the threads that make scores

fn key_groups() -> u32 {
  return min(threads / (head_dim / 8u), kTile);
}

fn read_key_chunk(split: Split, first: u32, tile: Tile, i: u32, n: u32, thread: u32) -> vec4<u32> {
  return read_key(split, first, tile, i, thread / kTeam + n * (threads / kTeam));
}

fn read_group_value(split: Split, first: u32, tile: Tile, n: u32, thread: u32) -> vec4<u32> {
  let chunks = head_dim / 8u;
  let i = thread / chunks + n * key_groups();
  // A key past the tile's end has no weight, and neither has a thread that belongs to no group.
  return read_value(split, first, tile, min(i, kTile - 1u), thread % chunks);
}

fn read_tile(split: Split, first: u32, thread: u32) {
  let tile = tile_at(split, first);
  let i = thread % kTeam;
  let j = i + kTeam;
  keys_here = EightChunks(
      read_key_chunk(split, first, tile, i, 0u, thread), read_key_chunk(split, first, tile, i, 1u, thread),
      read_key_chunk(split, first, tile, i, 2u, thread), read_key_chunk(split, first, tile, i, 3u, thread),
      read_key_chunk(split, first, tile, j, 0u, thread), read_key_chunk(split, first, tile, j, 1u, thread),
      read_key_chunk(split, first, tile, j, 2u, thread), read_key_chunk(split, first, tile, j, 3u, thread));
  values_here = EightChunks(
      read_group_value(split, first, tile, 0u, thread), read_group_value(split, first, tile, 1u, thread),
      read_group_value(split, first, tile, 2u, thread), read_group_value(split, first, tile, 3u, thread),
      read_group_value(split, first, tile, 4u, thread), read_group_value(split, first, tile, 5u, thread),
      read_group_value(split, first, tile, 6u, thread), read_group_value(split, first, tile, 7u, thread));
  step_here = read_step(split, first, tile, min(thread, kTile - 1u));
}

// Sums for the norm: of the queries over the lower half of the threads, of the key over the upper half. Waits.
fn norm_sums(query_squares: Heads, key_square: f32, thread: u32) -> NormSums {
  let half = threads / 2u;
  let octets = (head_dim / 2u + 7u) / 8u;
  if (thread < octets * 8u) {
    scratch[thread] = query_squares;
  }
  if (thread >= half && thread - half < head_dim / 4u) {
    key_squares[thread - half] = key_square;
  }
  workgroupBarrier();
  if (thread < octets) {
    var total = Heads(0.0);
    for (var i = 0u; i < 8u; i++) {
      total += scratch[thread * 8u + i];
    }
    scores[thread] = total;
  }
  workgroupBarrier();
  var sums = NormSums(Heads(0.0), 0.0);
  if (thread < half) {
    for (var i = 0u; i < octets; i++) {
      sums.query += scores[i];
    }
  } else {
    for (var i = 0u; i < head_dim / 4u; i++) {
      sums.key += key_squares[i];
    }
  }
  return sums;
}

struct TwoScores {
  a: Heads,
  b: Heads,
}

// Adds one chunk of two keys.
fn add_scores(s: TwoScores, a: vec4<u32>, b: vec4<u32>, chunk: u32) -> TwoScores {
  if (chunk >= head_dim / 8u) {
    return s;
  }
  let q = query_chunk(chunk * 8u);
  return TwoScores(s.a + dot_chunk(a, q), s.b + dot_chunk(b, q));
}

// Scores of the tile that was read, then its part of the softmax. Waits on both sides.
fn score_tile(split: Split, first: u32, thread: u32, cap: f32) {
  let lane = thread % kTeam;
  let part = thread / kTeam;
  let parts = threads / kTeam;
  if (made_here && split.newest - first < kTile) {
    let at = split.newest - first;
    if (at == lane) {
      keys_here.a = new_key_chunk(part);
      keys_here.b = new_key_chunk(part + parts);
      keys_here.c = new_key_chunk(part + 2u * parts);
      keys_here.d = new_key_chunk(part + 3u * parts);
    }
    if (at == lane + kTeam) {
      keys_here.e = new_key_chunk(part);
      keys_here.f = new_key_chunk(part + parts);
      keys_here.g = new_key_chunk(part + 2u * parts);
      keys_here.h = new_key_chunk(part + 3u * parts);
    }
  }
  let k = keys_here;
  var two = TwoScores(Heads(0.0), Heads(0.0));
  two = add_scores(two, k.a, k.e, part);
  two = add_scores(two, k.b, k.f, part + parts);
  two = add_scores(two, k.c, k.g, part + 2u * parts);
  two = add_scores(two, k.d, k.h, part + 3u * parts);
  scratch[part * kTile + lane] = two.a;
  scratch[part * kTile + kTeam + lane] = two.b;
  workgroupBarrier();
  if (thread < kTile) {
    var score = Heads(0.0);
    for (var p = 0u; p < parts; p++) {
      score += scratch[p * kTile + thread];
    }
    if (cap != 0.0) {
      score = soft_cap(score, cap);
    }
    scores[thread] = select(Heads(kLow), score, first + thread < split.end);
  }
  workgroupBarrier();
  if (thread < kTile / 8u) {
    var most = scores[thread * 8u];
    for (var i = 1u; i < 8u; i++) {
      most = max(most, scores[thread * 8u + i]);
    }
    maxima[thread] = most;
  }
  workgroupBarrier();
  if (thread < kTile) {
    var most = highest;
    for (var i = 0u; i < kTile / 8u; i++) {
      most = max(most, maxima[i]);
    }
    let prob = select(Heads(0.0), exp(scores[thread] - most), first + thread < split.end);
    probs[thread] = prob;
    step_probs[thread] = prob * select(step_here, new_step, made_here && first + thread == split.newest);
    if (thread == 0u) {
      rescale = exp(highest - most);
    }
    highest = most;
  }
  workgroupBarrier();
}

fn mix_group_value(value: vec4<u32>, n: u32, thread: u32) {
  let i = thread / (head_dim / 8u) + n * key_groups();
  let at = min(i, kTile - 1u);
  sum += select(Heads(0.0), probs[at], i < kTile);
  mixed = mix_in(mixed, select(Heads(0.0), step_probs[at], i < kTile), value);
}

// The value that is not in the cache yet takes its place among those of the tile, the `at`-th.
fn take_new_value(at: u32, thread: u32) {
  let chunks = head_dim / 8u;
  if (thread / chunks != at % key_groups()) {
    return;
  }
  let value = new_value_chunk(thread % chunks);
  switch at / key_groups() {
    case 0u: { values_here.a = value; }
    case 1u: { values_here.b = value; }
    case 2u: { values_here.c = value; }
    case 3u: { values_here.d = value; }
    case 4u: { values_here.e = value; }
    case 5u: { values_here.f = value; }
    case 6u: { values_here.g = value; }
    default: { values_here.h = value; }
  }
}

fn mix_tile(split: Split, first: u32, thread: u32) {
  let factor = rescale;
  sum *= factor;
  mixed = scaled(mixed, factor);
  if (thread / (head_dim / 8u) >= key_groups()) {
    return;
  }
  if (made_here && split.newest - first < kTile) {
    take_new_value(split.newest - first, thread);
  }
  let v = values_here;
  mix_group_value(v.a, 0u, thread);
  mix_group_value(v.b, 1u, thread);
  mix_group_value(v.c, 2u, thread);
  mix_group_value(v.d, 3u, thread);
  mix_group_value(v.e, 4u, thread);
  mix_group_value(v.f, 5u, thread);
  mix_group_value(v.g, 6u, thread);
  mix_group_value(v.h, 7u, thread);
}

// All tiles of a split, the first of which was read already. A sink is a score without a value: it counts in split 0.
fn attend(split: Split, thread: u32, cap: f32, sink: Heads, has_sink: bool) {
  sum = Heads(select(0.0, 1.0, has_sink && thread < head_dim / 8u));
  highest = select(Heads(kLow), sink, has_sink);
  mixed = no_mix();
  for (var first = split.first; first < split.end; first += kTile) {
    if (first != split.first) {
      read_tile(split, first, thread);
    }
    score_tile(split, first, thread, cap);
    mix_tile(split, first, thread);
  }
}
