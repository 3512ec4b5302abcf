// The groups' shares of a split's result (lib/attend.wgsl), added up and written to `partials`.

// Adds up `round_dims` dims of every chunk over the groups, from dim `round` of the chunk on.
fn write_round(round: u32, out: SplitOut, thread: u32) {
  let chunks = head_dim / 8u;
  workgroupBarrier();
  for (var o = thread; o < chunks * round_dims; o += threads) {
    var total = Heads(0.0);
    for (var g = 0u; g < key_groups(); g++) {
      total += scratch[o % round_dims * (threads + 1u) + g * chunks + o / round_dims];
    }
    write_dim(out, o / round_dims * 8u + round + o % round_dims, total);
  }
  workgroupBarrier();
}

fn keep_for_round(i: u32, value: Heads, thread: u32) {
  scratch[i % round_dims * (threads + 1u) + thread] = value;
}

fn write_split(out: SplitOut, thread: u32) {
  let chunks = head_dim / 8u;
  if (thread / chunks < key_groups() && thread % chunks == 0u) {
    scores[thread / chunks] = sum;
  }
  for (var round = 0u; round < 8u; round += round_dims) {
    if (round == 0u) {
      keep_for_round(0u, mixed.a, thread);
    }
    if (round <= 1u && 1u < round + round_dims) {
      keep_for_round(1u, mixed.b, thread);
    }
    if (round <= 2u && 2u < round + round_dims) {
      keep_for_round(2u, mixed.c, thread);
    }
    if (round <= 3u && 3u < round + round_dims) {
      keep_for_round(3u, mixed.d, thread);
    }
    if (round <= 4u && 4u < round + round_dims) {
      keep_for_round(4u, mixed.e, thread);
    }
    if (round <= 5u && 5u < round + round_dims) {
      keep_for_round(5u, mixed.f, thread);
    }
    if (round <= 6u && 6u < round + round_dims) {
      keep_for_round(6u, mixed.g, thread);
    }
    if (7u < round + round_dims) {
      keep_for_round(7u, mixed.h, thread);
    }
    write_round(round, out, thread);
  }
  if (thread == 0u) {
    var total = Heads(0.0);
    for (var g = 0u; g < key_groups(); g++) {
      total += scores[g];
    }
    write_sums(out, highest, total);
  }
}
