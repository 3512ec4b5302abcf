// A tile of a matrix product takes rows and tokens as they come. Past the end the last one is taken again.
fn weight_row(place: Place, tile_row: u32) -> u32 {
  return min(place.first_row + tile_row, params.rows - 1u);
}
fn x_token(place: Place, tile_token: u32) -> u32 {
  return min(place.first_token + tile_token, params.tokens - 1u);
}
