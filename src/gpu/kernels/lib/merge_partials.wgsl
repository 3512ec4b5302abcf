// Puts the splits of attention_decode or attention_fused together: out = Σ factor · partial, where a split's factor is
// exp(its max - max of all) / total. For any kernel with the bindings `state: State` and
// `partials: array<vec4<f32>>`, as its first stage: merge_factors() by all its threads, then merged(i) for the i-th four
// elements of the [heads · head_dim] result. Needs the snippets state and splits.
override merge_slots: u32 = 1;  // heads · splits

struct Merge {
  heads: u32,
  head_dim: u32,
  splits: u32,
  used: u32,  // splits that have keys
}

var<workgroup> merge_pairs: array<vec2<f32>, merge_slots>;  // [split][head]: max and sum
var<workgroup> merge_factor: array<f32, merge_slots>;

fn merge_of(heads: u32, head_dim: u32, splits: u32, window: u32) -> Merge {
  let position = state.position;
  let keys = position + 1u - oldest_key(position, window);
  return Merge(heads, head_dim, splits, active_splits(keys, splits, 64u));
}

// In uniform control flow. Waits at its end.
fn merge_factors(merge: Merge, thread: u32, thread_count: u32) {
  let count = merge.used * merge.heads;
  for (var i = thread; i < count; i += thread_count) {
    merge_pairs[i] = partials[merge.splits * merge.heads * merge.head_dim / 4u + i].xy;
  }
  workgroupBarrier();
  for (var i = thread; i < count; i += thread_count) {
    let head = i % merge.heads;
    var most = merge_pairs[i].x;
    for (var s = head; s < count; s += merge.heads) {
      most = max(most, merge_pairs[s].x);
    }
    var total = 0.0;
    for (var s = head; s < count; s += merge.heads) {
      total += exp(merge_pairs[s].x - most) * merge_pairs[s].y;
    }
    merge_factor[i] = exp(merge_pairs[i].x - most) / total;
  }
  workgroupBarrier();
}

// Split s times its factor; the last split stands in for those past the end, times zero.
fn merge_part(merge: Merge, i: u32, s: u32, head: u32) -> vec4<f32> {
  let there = min(s, merge.used - 1u);
  let factor = select(0.0, merge_factor[there * merge.heads + head], s < merge.used);
  return factor * partials[there * (merge.heads * merge.head_dim / 4u) + i];
}

fn merged(merge: Merge, i: u32) -> vec4<f32> {
  let head = i * 4u / merge.head_dim;
  var out = vec4<f32>(0.0);
  for (var s = 0u; s < merge.used; s += 8u) {  // eight loads in flight
    let a = merge_part(merge, i, s, head);
    let b = merge_part(merge, i, s + 1u, head);
    let c = merge_part(merge, i, s + 2u, head);
    let d = merge_part(merge, i, s + 3u, head);
    let e = merge_part(merge, i, s + 4u, head);
    let f = merge_part(merge, i, s + 5u, head);
    let g = merge_part(merge, i, s + 6u, head);
    let h = merge_part(merge, i, s + 7u, head);
    out += ((a + b) + (c + d)) + ((e + f) + (g + h));
  }
  return out;
}
