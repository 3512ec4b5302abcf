// Attention of one token over one split of its keys, for the query heads of `Heads`, which share keys and values.
//
// Keys are taken a tile of 64 at a time. For the scores, 32 neighbouring threads (a team) take two keys each and the
// teams share out the dims; for the values, `chunks` neighbouring threads take eight dims each and the groups they form
// share out the keys. Both are read into registers before anything waits, so a short split waits for memory once.
override threads: u32 = 256;    // at least head_dim
override head_dim: u32 = 64;
override round_dims: u32 = 2;   // dims of a chunk added up at a time, a divisor of 8: more take more workgroup memory
override made_here: bool = false;  // the newest key and value are in new_key and new_value, not yet in the cache

const kTeam: u32 = 32;
const kTile: u32 = 64;
const kPartChunks: u32 = 4;   // chunks a team: head_dim is 8 · kPartChunks · (threads / kTeam) at most
const kGroupKeys: u32 = 8;    // keys of a tile a group: threads / chunks is at least kTile / kGroupKeys
const kLow: f32 = -1e30;      // below any score

struct Split {
  first: u32,     // position of its first key
  end: u32,       // behind its last
  newest: u32,    // position of the token itself
  kv_head: u32,
  kv_heads: u32,
  capacity: u32,
}

var<workgroup> query: array<Heads, head_dim>;       // times the scale
var<workgroup> scratch: array<Heads, max(threads / kTeam * kTile, round_dims * (threads + 1u))>;
var<workgroup> scores: array<Heads, kTile>;
var<workgroup> shares: array<Heads, kTile>;         // exp(score - max)
var<workgroup> maxima: array<Heads, kTile / 8u>;
var<workgroup> rescale: Heads;
var<workgroup> new_key: array<u32, head_dim / 2u>;
var<workgroup> new_value: array<u32, head_dim / 2u>;

var<private> keys_read: array<vec4<u32>, 2u * kPartChunks>;
var<private> values_read: array<vec4<u32>, kGroupKeys>;
var<private> mixed: array<Heads, 8>;  // this thread's eight dims
var<private> sum: Heads;
var<private> highest: Heads;          // kept by the threads that make scores

fn key_groups() -> u32 {
  return min(threads / (head_dim / 8u), kTile);
}

fn read_tile(split: Split, first: u32, thread: u32) {
  let chunks = head_dim / 8u;
  for (var side = 0u; side < 2u; side++) {
    let key = first + thread % kTeam + side * kTeam;
    let there = key < split.end && !(made_here && key == split.newest);
    let slot = key % split.capacity;
    for (var n = 0u; n < kPartChunks; n++) {
      let chunk = thread / kTeam + n * (threads / kTeam);
      var read = vec4<u32>(0u);
      if (there && chunk < chunks) {
        read = cache[key_index(split.kv_head, chunk, slot, chunks, split.capacity)];
      }
      keys_read[side * kPartChunks + n] = read;
    }
  }
  let groups = key_groups();
  for (var n = 0u; n < kGroupKeys; n++) {
    let i = thread / chunks + n * groups;
    let key = first + i;
    var read = vec4<u32>(0u);
    if (thread / chunks < groups && i < kTile && key < split.end && !(made_here && key == split.newest)) {
      read = cache[value_index(split.kv_head, key % split.capacity, thread % chunks, split.kv_heads, chunks,
                               split.capacity)];
    }
    values_read[n] = read;
  }
}

fn dot_chunk(key: vec4<u32>, at: u32) -> Heads {
  let a = unpack2x16float(key.x);
  let b = unpack2x16float(key.y);
  let c = unpack2x16float(key.z);
  let d = unpack2x16float(key.w);
  return ((query[at] * a.x + query[at + 1u] * a.y) + (query[at + 2u] * b.x + query[at + 3u] * b.y)) +
         ((query[at + 4u] * c.x + query[at + 5u] * c.y) + (query[at + 6u] * d.x + query[at + 7u] * d.y));
}

fn new_key_chunk(chunk: u32) -> vec4<u32> {
  let i = chunk * 4u;
  return vec4<u32>(new_key[i], new_key[i + 1u], new_key[i + 2u], new_key[i + 3u]);
}

fn new_value_chunk(chunk: u32) -> vec4<u32> {
  let i = chunk * 4u;
  return vec4<u32>(new_value[i], new_value[i + 1u], new_value[i + 2u], new_value[i + 3u]);
}

// Scores of the tile that was read, then its share of the softmax. Waits on both sides.
fn score_tile(split: Split, first: u32, thread: u32, cap: f32) {
  let chunks = head_dim / 8u;
  for (var side = 0u; side < 2u; side++) {
    let fresh = made_here && first + thread % kTeam + side * kTeam == split.newest;
    var score = Heads(0.0);
    for (var n = 0u; n < kPartChunks; n++) {
      let chunk = thread / kTeam + n * (threads / kTeam);
      if (chunk < chunks) {
        var key = keys_read[side * kPartChunks + n];
        if (fresh) {
          key = new_key_chunk(chunk);
        }
        score += dot_chunk(key, chunk * 8u);
      }
    }
    scratch[thread / kTeam * kTile + side * kTeam + thread % kTeam] = score;
  }
  workgroupBarrier();
  if (thread < kTile) {
    var score = Heads(0.0);
    for (var part = 0u; part < threads / kTeam; part++) {
      score += scratch[part * kTile + thread];
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
    shares[thread] = select(Heads(0.0), exp(scores[thread] - most), first + thread < split.end);
    if (thread == 0u) {
      rescale = exp(highest - most);
    }
    highest = most;
  }
  workgroupBarrier();
}

fn mix_tile(split: Split, first: u32, thread: u32) {
  let chunks = head_dim / 8u;
  let groups = key_groups();
  let group = thread / chunks;
  let factor = rescale;
  sum *= factor;
  for (var i = 0u; i < 8u; i++) {
    mixed[i] *= factor;
  }
  if (group >= groups) {
    return;
  }
  for (var n = 0u; n < kGroupKeys; n++) {
    let i = group + n * groups;
    if (i < kTile) {
      let share = shares[i];
      var value = values_read[n];
      if (made_here && first + i == split.newest) {
        value = new_value_chunk(thread % chunks);
      }
      let a = unpack2x16float(value.x);
      let b = unpack2x16float(value.y);
      let c = unpack2x16float(value.z);
      let d = unpack2x16float(value.w);
      sum += share;
      mixed[0] += share * a.x;
      mixed[1] += share * a.y;
      mixed[2] += share * b.x;
      mixed[3] += share * b.y;
      mixed[4] += share * c.x;
      mixed[5] += share * c.y;
      mixed[6] += share * d.x;
      mixed[7] += share * d.y;
    }
  }
}

// All tiles of a split, the first of which was read already. A sink is a score without a value: it counts in split 0.
fn attend(split: Split, thread: u32, cap: f32, sink: Heads, has_sink: bool) {
  sum = Heads(select(0.0, 1.0, has_sink && thread < head_dim / 8u));
  highest = select(Heads(kLow), sink, has_sink);
  for (var i = 0u; i < 8u; i++) {
    mixed[i] = Heads(0.0);
  }
  for (var first = split.first; first < split.end; first += kTile) {
    if (first != split.first) {
      read_tile(split, first, thread);
    }
    score_tile(split, first, thread, cap);
    mix_tile(split, first, thread);
  }
}
