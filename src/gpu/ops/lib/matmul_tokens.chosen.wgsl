// A tile of a matrix product takes tokens that chose one expert, and rows of that expert. A kernel that uses this has
// bindings tiles and entries (expert_map.wgsl) and params.rows (of an expert), share (entries that read one row of x) and
// first_expert, experts (of this part of W). A tile says whose rows it takes (own.x) and where in W they are (own.w): the
// same number, but for experts that are paged.
var<workgroup> tile_entries: array<u32, tile_tokens>;
var<private> tile_expert: u32;
var<private> tile_slot: u32;
var<private> tile_count: u32;

// False: there is nothing to do in this tile.
fn take_tile(tile: u32, lane: u32) -> bool {
  let own = tiles[tile];
  tile_expert = own.x;
  tile_slot = own.w - params.first_expert;
  tile_count = own.z;
  if (own.z == 0u || own.w < params.first_expert || own.w >= params.first_expert + params.experts) {
    return false;
  }
  for (var i = lane; i < tile_tokens; i += threads) {
    tile_entries[i] = entries[own.y + min(i, own.z - 1u)];
  }
  workgroupBarrier();
  return true;
}

fn weight_row(place: Place, tile_row: u32) -> u32 {
  return tile_slot * params.rows + min(place.first_row + tile_row, params.rows - 1u);
}
fn x_token(place: Place, tile_token: u32) -> u32 {
  return tile_entries[tile_token] / params.share;
}
