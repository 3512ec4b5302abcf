// Leaves a split's result in `partials`: [splits][heads · head_dim] sums of share · value, then [splits][heads] vec4
// (highest score, sum of shares, 0, 0). lib/merge_partials.wgsl puts the splits together.
fn write_split(split: u32, splits: u32, heads: u32, first_head: u32, head_count: u32, thread: u32) {
  let chunks = head_dim / 8u;
  let groups = key_groups();
  let group = thread / chunks;
  if (group < groups && thread % chunks == 0u) {
    scores[group] = sum;
  }
  for (var round = 0u; round < 8u; round += round_dims) {
    for (var i = 0u; i < round_dims; i++) {
      scratch[i * (threads + 1u) + thread] = mixed[round + i];
    }
    workgroupBarrier();
    for (var o = thread; o < chunks * round_dims; o += threads) {
      let chunk = o / round_dims;
      var total = Heads(0.0);
      for (var g = 0u; g < groups; g++) {
        total += scratch[o % round_dims * (threads + 1u) + g * chunks + chunk];
      }
      let d = chunk * 8u + round + o % round_dims;
      for (var h = 0u; h < head_count; h++) {
        partials[(split * heads + first_head + h) * head_dim + d] = head_of(total, h);
      }
    }
    workgroupBarrier();
  }
  if (thread == 0u) {
    var total = Heads(0.0);
    for (var g = 0u; g < groups; g++) {
      total += scores[g];
    }
    for (var h = 0u; h < head_count; h++) {
      let at = splits * heads * head_dim + (split * heads + first_head + h) * 4u;
      partials[at] = head_of(highest, h);
      partials[at + 1u] = head_of(total, h);
    }
  }
}
