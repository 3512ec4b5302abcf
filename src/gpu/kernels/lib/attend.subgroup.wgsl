// Attention of one token over one split of its keys, for the query heads of `Heads`, which share keys and values. For
// subgroups of 32 lanes or more; a team is 32 neighbouring threads, and lanes of a team exchange by shuffles.
//
// Keys are taken a tile of 64 at a time. A lane is (key % 8, chunk % 4): the team takes four chunks of head_dim, and
// teams share out the chunks first, then the keys. So a lane needs one chunk of the queries, which it keeps; sums over
// the four chunks are two shuffles, sums over the teams one trip through workgroup memory; the softmax is made by every
// team for itself; and the mix of the values needs no workgroup memory when all teams are needed for one key.
// Keys and values of the next tile are read while this one is worked on.
enable subgroups;
diagnostic(off, subgroup_uniformity);

var<workgroup> scratch: array<Heads, threads / kTeam * kTile>;  // [quad][key], or [key team][dim]
var<workgroup> query_squares_of: array<Heads, threads / kTeam>;
var<workgroup> key_squares_of: array<f32, threads / kTeam>;

var<private> keys_here: EightChunks;
var<private> values_here: EightChunks;
var<private> query_here: EightHeads;
var<private> mixed: EightHeads;
var<private> sum: Heads;
var<private> highest: Heads;

fn quads() -> u32 {  // teams that share one key's chunks
  return (head_dim / 8u + 3u) / 4u;
}

fn key_teams() -> u32 {  // teams that share out the keys: 1, 2, 4 or 8
  let n = threads / kTeam / quads();
  return select(select(select(1u, 2u, n >= 2u), 4u, n >= 4u), 8u, n >= 8u);
}

// The n-th key of a lane in its tile.
fn key_of(n: u32, thread: u32) -> u32 {
  return (n * key_teams() + thread / kTeam / quads()) * 8u + thread % 8u;
}

fn chunk_of(thread: u32) -> u32 {
  return thread / kTeam % quads() * 4u + thread % kTeam / 8u;
}

fn has_keys(n: u32, thread: u32) -> bool {
  return n < 8u / key_teams() && thread / kTeam < quads() * key_teams();
}

fn read_own_key(split: Split, first: u32, slot: u32, n: u32, thread: u32) -> vec4<u32> {
  if (!has_keys(n, thread)) {
    return vec4<u32>(0u);
  }
  return read_key(split, first, slot, key_of(n, thread), chunk_of(thread));
}

fn read_own_value(split: Split, first: u32, slot: u32, n: u32, thread: u32) -> vec4<u32> {
  if (!has_keys(n, thread)) {
    return vec4<u32>(0u);
  }
  return read_value(split, first, slot, key_of(n, thread), chunk_of(thread));
}

fn read_keys(split: Split, first: u32, thread: u32) {
  let slot = first % split.capacity;
  keys_here = EightChunks(read_own_key(split, first, slot, 0u, thread), read_own_key(split, first, slot, 1u, thread),
                          read_own_key(split, first, slot, 2u, thread), read_own_key(split, first, slot, 3u, thread),
                          read_own_key(split, first, slot, 4u, thread), read_own_key(split, first, slot, 5u, thread),
                          read_own_key(split, first, slot, 6u, thread), read_own_key(split, first, slot, 7u, thread));
}

fn read_values(split: Split, first: u32, thread: u32) {
  let slot = first % split.capacity;
  values_here = EightChunks(read_own_value(split, first, slot, 0u, thread), read_own_value(split, first, slot, 1u, thread),
                            read_own_value(split, first, slot, 2u, thread), read_own_value(split, first, slot, 3u, thread),
                            read_own_value(split, first, slot, 4u, thread), read_own_value(split, first, slot, 5u, thread),
                            read_own_value(split, first, slot, 6u, thread), read_own_value(split, first, slot, 7u, thread));
}

fn read_tile(split: Split, first: u32, thread: u32) {
  read_keys(split, first, thread);
  read_values(split, first, thread);
}

// Sums for the norm: of the queries over the lower half of the threads, of the key over the upper half. Waits.
fn norm_sums(query_squares: Heads, key_square: f32, thread: u32) -> NormSums {
  let q = subgroupAdd(query_squares);
  let k = subgroupAdd(key_square);
  let size = subgroupAdd(1u);
  if (subgroupElect()) {
    query_squares_of[thread / size] = q;
    key_squares_of[thread / size] = k;
  }
  workgroupBarrier();
  var sums = NormSums(Heads(0.0), 0.0);
  let half = threads / 2u / size;
  for (var i = 0u; i < half; i++) {
    sums.query += query_squares_of[i];
    sums.key += key_squares_of[half + i];
  }
  return sums;
}

fn with_new_key(k: vec4<u32>, n: u32, split: Split, first: u32, thread: u32) -> vec4<u32> {
  if (has_keys(n, thread) && first + key_of(n, thread) == split.newest) {
    return new_key_chunk(chunk_of(thread));
  }
  return k;
}

fn with_new_value(v: vec4<u32>, n: u32, split: Split, first: u32, thread: u32) -> vec4<u32> {
  if (has_keys(n, thread) && first + key_of(n, thread) == split.newest) {
    return new_value_chunk(chunk_of(thread));
  }
  return v;
}

fn use_new(split: Split, first: u32, thread: u32) {
  let k = keys_here;
  keys_here = EightChunks(with_new_key(k.a, 0u, split, first, thread), with_new_key(k.b, 1u, split, first, thread),
                          with_new_key(k.c, 2u, split, first, thread), with_new_key(k.d, 3u, split, first, thread),
                          with_new_key(k.e, 4u, split, first, thread), with_new_key(k.f, 5u, split, first, thread),
                          with_new_key(k.g, 6u, split, first, thread), with_new_key(k.h, 7u, split, first, thread));
  let v = values_here;
  values_here =
      EightChunks(with_new_value(v.a, 0u, split, first, thread), with_new_value(v.b, 1u, split, first, thread),
                  with_new_value(v.c, 2u, split, first, thread), with_new_value(v.d, 3u, split, first, thread),
                  with_new_value(v.e, 4u, split, first, thread), with_new_value(v.f, 5u, split, first, thread),
                  with_new_value(v.g, 6u, split, first, thread), with_new_value(v.h, 7u, split, first, thread));
}

// a of the lanes whose bit is clear plus b of those whose bit is set: each lane keeps one of its two and gives away the
// other.
fn fold(a: Heads, b: Heads, bit: u32, thread: u32) -> Heads {
  let up = (thread & bit) != 0u;
  return select(a, b, up) + subgroupShuffleXor(select(b, a, up), bit);
}

fn over_chunks(s: Heads) -> Heads {
  let two = s + subgroupShuffleXor(s, 8u);
  return two + subgroupShuffleXor(two, 16u);
}

// This tile's scores, summed over the team's chunks, to scratch.
fn leave_scores(thread: u32) {
  let k = keys_here;
  let q = query_here;
  let row = thread / kTeam % quads() * kTile;
  if (key_teams() == 1u) {
    // Eight keys a lane: the sums over four lanes leave two to each.
    let s0 = fold(dot_chunk(k.a, q), dot_chunk(k.e, q), 16u, thread);
    let s1 = fold(dot_chunk(k.b, q), dot_chunk(k.f, q), 16u, thread);
    let s2 = fold(dot_chunk(k.c, q), dot_chunk(k.g, q), 16u, thread);
    let s3 = fold(dot_chunk(k.d, q), dot_chunk(k.h, q), 16u, thread);
    let t0 = fold(s0, s2, 8u, thread);
    let t1 = fold(s1, s3, 8u, thread);
    if (thread / kTeam < quads()) {
      let n = (thread & 16u) / 4u + (thread & 8u) / 4u;
      scratch[row + key_of(n, thread)] = t0;
      scratch[row + key_of(n + 1u, thread)] = t1;
    }
    return;
  }
  let writes = thread % kTeam < 8u;
  let s0 = over_chunks(dot_chunk(k.a, q));
  if (writes && has_keys(0u, thread)) {
    scratch[row + key_of(0u, thread)] = s0;
  }
  if (key_teams() <= 4u) {
    let s1 = over_chunks(dot_chunk(k.b, q));
    if (writes && has_keys(1u, thread)) {
      scratch[row + key_of(1u, thread)] = s1;
    }
  }
  if (key_teams() == 2u) {
    let s2 = over_chunks(dot_chunk(k.c, q));
    let s3 = over_chunks(dot_chunk(k.d, q));
    if (writes && has_keys(2u, thread)) {
      scratch[row + key_of(2u, thread)] = s2;
      scratch[row + key_of(3u, thread)] = s3;
    }
  }
}

fn score_at(i: u32, split: Split, first: u32, cap: f32) -> Heads {
  var score = Heads(0.0);
  for (var quad = 0u; quad < quads(); quad++) {
    score += scratch[quad * kTile + i];
  }
  if (cap != 0.0) {
    score = soft_cap(score, cap);
  }
  return select(Heads(kLow), score, first + i < split.end);
}

fn mix_own(n: u32, value: vec4<u32>, low: Heads, high: Heads, thread: u32) {
  let key = key_of(n, thread);  // its share lies in lane key % 32 of every team
  let a = subgroupShuffle(low, key % kTeam);
  let b = subgroupShuffle(high, key % kTeam);
  let share = select(a, b, key >= kTeam);
  sum += share;
  mixed = mix_in(mixed, share, value);
}

// All tiles of a split, the first of which was read already. A sink is a score without a value: it counts in split 0.
fn attend(split: Split, thread: u32, cap: f32, sink: Heads, has_sink: bool) {
  query_here = query_chunk(min(chunk_of(thread), head_dim / 8u - 1u) * 8u);
  sum = Heads(select(0.0, 1.0, has_sink && thread / kTeam < quads() && thread % 8u == 0u));
  highest = select(Heads(kLow), sink, has_sink);
  mixed = no_mix();
  let lane = thread % kTeam;
  for (var first = split.first; first < split.end; first += kTile) {
    if (made_here && split.newest - first < kTile) {
      use_new(split, first, thread);
    }
    leave_scores(thread);
    let more = first + kTile < split.end;
    if (more) {
      read_keys(split, first + kTile, thread);
    }
    workgroupBarrier();
    let s0 = score_at(lane, split, first, cap);
    let s1 = score_at(lane + kTeam, split, first, cap);
    let most = max(highest, subgroupMax(max(s0, s1)));
    let low = select(Heads(0.0), exp(s0 - most), first + lane < split.end);
    let high = select(Heads(0.0), exp(s1 - most), first + lane + kTeam < split.end);
    let rescale = exp(highest - most);
    highest = most;
    sum *= rescale;
    mixed = scaled(mixed, rescale);
    let v = values_here;
    mix_own(0u, v.a, low, high, thread);
    if (key_teams() <= 4u) {
      mix_own(1u, v.b, low, high, thread);
    }
    if (key_teams() <= 2u) {
      mix_own(2u, v.c, low, high, thread);
      mix_own(3u, v.d, low, high, thread);
    }
    if (key_teams() == 1u) {
      mix_own(4u, v.e, low, high, thread);
      mix_own(5u, v.f, low, high, thread);
      mix_own(6u, v.g, low, high, thread);
      mix_own(7u, v.h, low, high, thread);
    }
    if (more) {
      read_values(split, first + kTile, thread);
      workgroupBarrier();
    }
  }
}

fn write_split(out: SplitOut, thread: u32) {
  // Sums over the eight keys of a team leave one dim of the chunk to each lane: dim lane % 8.
  let m = mixed;
  let a = fold(m.a, m.e, 4u, thread);
  let b = fold(m.b, m.f, 4u, thread);
  let c = fold(m.c, m.g, 4u, thread);
  let d = fold(m.d, m.h, 4u, thread);
  let ab = fold(a, c, 2u, thread);
  let cd = fold(b, d, 2u, thread);
  var mine = fold(ab, cd, 1u, thread);
  var total = sum;
  total += subgroupShuffleXor(total, 1u);
  total += subgroupShuffleXor(total, 2u);
  total += subgroupShuffleXor(total, 4u);
  let at = chunk_of(thread) * 8u + thread % 8u;
  let team = thread / kTeam / quads();  // of those that share out the keys
  if (key_teams() > 1u) {
    workgroupBarrier();
    if (team < key_teams() && at < head_dim) {
      scratch[team * head_dim + at] = mine;
    }
    if (team < key_teams() && thread / kTeam % quads() == 0u && thread % kTeam == 0u) {
      query_squares_of[team] = total;
    }
    workgroupBarrier();
    mine = Heads(0.0);
    total = Heads(0.0);
    for (var t = 0u; t < key_teams(); t++) {
      mine += scratch[t * head_dim + min(at, head_dim - 1u)];
      total += query_squares_of[t];
    }
  }
  if (team == 0u && at < head_dim) {
    write_dim(out, at, mine);
  }
  if (thread == 0u) {
    write_sums(out, highest, total);
  }
}
