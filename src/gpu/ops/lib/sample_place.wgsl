// A place in the candidates' order (heavier first, ties by id): the first at which a count or a sum of weights is
// reached. range_of() finds a few candidates around it, among the bins first, then inside one bin, which is cut into
// sub-bins by key (by id, where all keys are equal) until few are left; rank() puts these in order, place_in() looks.
const kByCount: u32 = 0;   // that many candidates
const kByReach: u32 = 1;   // a sum of weights of at least that much
const kByExcess: u32 = 2;  // a sum of weights above that
const kNone: u32 = 0xffffffff;
const kSubBins: u32 = 128;

struct Wanted {
  by: u32,
  count: u32,
  weight: f32,
}

struct Place {
  count: u32,   // candidates up to and with this one
  weight: f32,  // theirs
  id: u32,      // of this one
}

var<workgroup> count_to: array<u32, kBins>;   // candidates up to the end of a bin
var<workgroup> weight_to: array<f32, kBins>;  // and their weight
var<workgroup> sub_count: array<atomic<u32>, kSubBins>;
var<workgroup> sub_low: array<atomic<u32>, kSubBins>;
var<workgroup> sub_high: array<atomic<u32>, kSubBins>;
var<workgroup> found: atomic<u32>;
var<workgroup> found_here: Found;
var<workgroup> least: array<atomic<u32>, 2>;  // of keys, of ids
var<workgroup> most: array<atomic<u32>, 2>;
var<workgroup> span: array<u32, 4>;           // the same four, settled
var<workgroup> gathered: atomic<u32>;
var<workgroup> place_here: Place;

fn is_reached(wanted: Wanted, count: u32, weight: f32) -> bool {
  if (wanted.by == kByCount) {
    return count >= wanted.count;
  }
  if (wanted.by == kByReach) {
    return weight >= wanted.weight;
  }
  return weight > wanted.weight;
}

// Where a search among bins, sub-bins or ranks ended.
struct Found {
  at: u32,
  count: u32,   // before it
  weight: f32,
  left: u32,    // in it
}

// The lowest of the threads' numbers, for every thread to see in `found` after the next barrier.
fn offer(mine: u32, lane: u32) {
  if (lane == 0u) {
    atomicStore(&found, kNone);
  }
  workgroupBarrier();
  if (mine != kNone) {
    atomicMin(&found, mine);
  }
  workgroupBarrier();
}

struct Range {  // of candidates in the list, by key and id, all inclusive
  begin: u32,
  end: u32,
  keys: vec2<u32>,
  ids: vec2<u32>,
  left: u32,    // how many they are
  count: u32,   // candidates before them
  weight: f32,  // and their weight
}

fn in_range(range: Range, pair: vec2<u32>) -> bool {
  return pair.x >= range.keys.x && pair.x <= range.keys.y && pair.y >= range.ids.x && pair.y <= range.ids.y;
}

// The keys and ids that occur in a range.
fn narrowed(range: Range, lane: u32) -> Range {
  if (lane < 2u) {
    atomicStore(&least[lane], kNone);
    atomicStore(&most[lane], 0u);
  }
  workgroupBarrier();
  for (var i = range.begin + lane; i < range.end; i += threads) {
    let pair = candidates[i];
    if (in_range(range, pair)) {
      atomicMin(&least[0], pair.x);
      atomicMax(&most[0], pair.x);
      atomicMin(&least[1], pair.y);
      atomicMax(&most[1], pair.y);
    }
  }
  workgroupBarrier();
  if (lane < 2u) {
    span[2u * lane] = atomicLoad(&least[lane]);
    span[2u * lane + 1u] = atomicLoad(&most[lane]);
  }
  workgroupBarrier();
  var out = range;
  out.keys = vec2<u32>(workgroupUniformLoad(&span[0]), workgroupUniformLoad(&span[1]));
  out.ids = vec2<u32>(workgroupUniformLoad(&span[2]), workgroupUniformLoad(&span[3]));
  return out;
}

// The candidates of the bin, or the part of it, in which the place lies: no more than there are threads. Not past the bin
// of candidate number `kept`.
fn range_of(wanted: Wanted, kept: u32, highest: f32, inverse_temperature: f32, lane: u32) -> Range {
  var mine = kNone;
  for (var bin = lane; bin < kBins; bin += threads) {
    let before = select(0u, count_to[max(bin, 1u) - 1u], bin > 0u);
    if (mine == kNone && count_to[bin] > before &&
        (count_to[bin] >= kept || is_reached(wanted, count_to[bin], weight_to[bin]))) {
      mine = bin;
    }
  }
  offer(mine, lane);
  if (lane == 0u) {
    let bin = atomicLoad(&found);
    var before = 0u;
    var lighter = 0.0;
    if (bin > 0u) {
      before = count_to[bin - 1u];
      lighter = weight_to[bin - 1u];
    }
    found_here = Found(bin, before, lighter, count_to[bin] - before);
  }
  let in_bin = workgroupUniformLoad(&found_here);
  var count = in_bin.count;  // before the range
  var weight = in_bin.weight;
  var left = in_bin.left;
  var range = Range(count, count + left, vec2<u32>(0u, kNone), vec2<u32>(0u, kNone), 0u, 0u, 0.0);
  if (range.end <= threads) {  // with all before it: what is asked for next lies in there too
    range.begin = 0u;
    range.left = range.end;
    return range;
  }

  while (left > threads) {
    range = narrowed(range, lane);
    // Sub-bins in the candidates' order: falling keys, or rising ids.
    let by_key = range.keys.x != range.keys.y;
    let width = select(range.ids.y - range.ids.x, range.keys.y - range.keys.x, by_key);
    let shift = max(32u - countLeadingZeros(width), 7u) - 7u;
    let base = depth_of(range.keys.y, highest, inverse_temperature);
    if (lane < kSubBins) {
      atomicStore(&sub_count[lane], 0u);
      atomicStore(&sub_low[lane], 0u);
      atomicStore(&sub_high[lane], 0u);
    }
    workgroupBarrier();
    for (var i = range.begin + lane; i < range.end; i += threads) {
      let pair = candidates[i];
      if (in_range(range, pair)) {
        let sub = select(pair.y - range.ids.x, range.keys.y - pair.x, by_key) >> shift;
        let part = fixed_weight(depth_of(pair.x, highest, inverse_temperature) - base);
        atomicAdd(&sub_count[sub], 1u);
        atomicAdd(&sub_low[sub], part.x);
        atomicAdd(&sub_high[sub], part.y);
      }
    }
    workgroupBarrier();
    var sub_candidates = 0u;
    var sub_weight = 0.0;
    if (lane < kSubBins) {
      sub_candidates = atomicLoad(&sub_count[lane]);
      sub_weight = exp(-base) * sum_of_fixed(atomicLoad(&sub_low[lane]), atomicLoad(&sub_high[lane]));
    }
    scan(sub_candidates, sub_weight, lane);
    let stops = sub_candidates != 0u && (count_sums[lane] == left ||
                                         is_reached(wanted, count + count_sums[lane], weight + weight_sums[lane]));
    offer(select(kNone, lane, stops), lane);
    if (lane == 0u) {
      let at = atomicLoad(&found);
      var before = 0u;
      var lighter = 0.0;
      if (at > 0u) {
        before = count_sums[at - 1u];
        lighter = weight_sums[at - 1u];
      }
      found_here = Found(at, before, lighter, count_sums[at] - before);
    }
    let in_sub = workgroupUniformLoad(&found_here);
    let sub = in_sub.at;
    count += in_sub.count;
    weight += in_sub.weight;
    left = in_sub.left;
    let reach = (1u << shift) - 1u;  // of a sub-bin
    if (by_key) {
      let top = range.keys.y - (sub << shift);
      range.keys = vec2<u32>(top - min(top, reach), top);
    } else {
      let bottom = range.ids.x + (sub << shift);
      range.ids = vec2<u32>(bottom, bottom + reach);
    }
  }
  range.left = left;
  range.count = count;
  range.weight = weight;
  return range;
}

// Leaves a range's candidates in order in `pairs` and the sums of their weights in weight_sums.
fn rank_range(range: Range, highest: f32, inverse_temperature: f32, lane: u32) {
  if (lane == 0u) {
    atomicStore(&gathered, 0u);
  }
  workgroupBarrier();
  for (var i = range.begin + lane; i < range.end; i += threads) {
    if (in_range(range, candidates[i])) {
      pairs[atomicAdd(&gathered, 1u)] = candidates[i];
    }
  }
  workgroupBarrier();
  let pair = pairs[lane];
  var rank = 0u;
  for (var i = 0u; i < range.left; i++) {
    rank += select(0u, 1u, better(pairs[i], pair));
  }
  workgroupBarrier();
  if (lane < range.left) {
    pairs[rank] = pair;
  }
  workgroupBarrier();
  let weighs = exp(-depth_of(pairs[lane].x, highest, inverse_temperature));
  scan(0u, select(0.0, weighs, lane < range.left), lane);
}

// The place itself, in a range that was ranked.
fn place_in(range: Range, wanted: Wanted, lane: u32) -> Place {
  let count = range.count + lane + 1u;
  let weight = range.weight + weight_sums[lane];
  offer(select(kNone, lane, lane + 1u == range.left || (lane < range.left && is_reached(wanted, count, weight))), lane);
  if (lane == atomicLoad(&found)) {
    place_here = Place(count, weight, pairs[lane].y);
  }
  return workgroupUniformLoad(&place_here);
}
