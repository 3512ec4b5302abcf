// How the keys one token sees are shared out among workgroups: `splits` of them at most, each with a whole number of
// tiles. A few keys make few splits, so that little is left to merge.
fn oldest_key(position: u32, window: u32) -> u32 {
  return select(0u, position + 1u - window, window != 0u && position + 1u > window);
}

fn keys_of_split(keys: u32, splits: u32, tile: u32) -> u32 {
  let even = (keys + splits - 1u) / splits;
  return (even + tile - 1u) / tile * tile;
}

fn active_splits(keys: u32, splits: u32, tile: u32) -> u32 {
  let each = keys_of_split(keys, splits, tile);
  return (keys + each - 1u) / each;
}
