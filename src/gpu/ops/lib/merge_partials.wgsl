// Puts the splits of attention_decode or attention_fused together: out = Σ factor · partial, where a split's factor is
// exp(its max - max of all) / total. For any kernel with the bindings `state: State` and
// `partials: array<vec4<f32>>`, as its first stage: merged(…, i) is the i-th four elements of the [heads · head_dim]
// result. Needs the snippets state and splits. Every thread works out its factors itself: all it needs is asked for at
// once, before it is known how many splits have keys, and nobody waits for anybody.
struct Merge {
  heads: u32,
  head_dim: u32,
  splits: u32,
  window: u32,
}

struct SplitPart {
  highest: f32,
  sum: f32,
  mixed: vec4<f32>,
}

const kNoScore: f32 = -1e30;  // below any score

fn used_splits(merge: Merge) -> u32 {
  let position = state.position;
  let keys = position + 1u - oldest_key(position, merge.window);
  return active_splits(keys, merge.splits, 64u);
}

fn read_split(merge: Merge, s: u32, i: u32, head: u32) -> SplitPart {
  let there = min(s, merge.splits - 1u);
  let width = merge.heads * merge.head_dim / 4u;
  let pair = partials[merge.splits * width + there * merge.heads + head];
  return SplitPart(pair.x, pair.y, partials[there * width + i]);
}

// What lies in a split without keys is anything at all.
fn only(used: bool, part: SplitPart) -> SplitPart {
  return SplitPart(select(kNoScore, part.highest, used), select(0.0, part.sum, used),
                   select(vec4<f32>(0.0), part.mixed, used));
}

fn joined(a: SplitPart, b: SplitPart) -> SplitPart {
  let highest = max(a.highest, b.highest);
  let of_a = exp(a.highest - highest);
  let of_b = exp(b.highest - highest);
  return SplitPart(highest, of_a * a.sum + of_b * b.sum, of_a * a.mixed + of_b * b.mixed);
}

fn merged(merge: Merge, i: u32) -> vec4<f32> {
  let head = i * 4u / merge.head_dim;
  var all = SplitPart(kNoScore, 0.0, vec4<f32>(0.0));
  var used = 1u;
  for (var s = 0u; s < used; s += 8u) {
    let a = read_split(merge, s, i, head);
    let b = read_split(merge, s + 1u, i, head);
    let c = read_split(merge, s + 2u, i, head);
    let d = read_split(merge, s + 3u, i, head);
    let e = read_split(merge, s + 4u, i, head);
    let f = read_split(merge, s + 5u, i, head);
    let g = read_split(merge, s + 6u, i, head);
    let h = read_split(merge, s + 7u, i, head);
    used = used_splits(merge);
    let ab = joined(only(s < used, a), only(s + 1u < used, b));
    let cd = joined(only(s + 2u < used, c), only(s + 3u < used, d));
    let ef = joined(only(s + 4u < used, e), only(s + 5u < used, f));
    let gh = joined(only(s + 6u < used, g), only(s + 7u < used, h));
    all = joined(all, joined(joined(ab, cd), joined(ef, gh)));
  }
  return all.mixed / all.sum;
}
