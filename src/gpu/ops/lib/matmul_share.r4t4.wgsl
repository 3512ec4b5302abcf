// A thread's share of the tile: 4 rows, `row_lanes` apart, by 4 tokens, `token_lanes` apart. Written out, because arrays
// indexed in a loop do not surely live in registers.
const kThreadRows: u32 = 4;
const kThreadTokens: u32 = 4;

struct Sums {  // a vector holds four rows of one token
  a0: vec4<f32>,
  a1: vec4<f32>,
  a2: vec4<f32>,
  a3: vec4<f32>,
}

// Adds the products of unit k of the tile. row, token: this thread's first ones in the tile.
fn accumulate(sums: ptr<function, Sums>, k: u32, row: u32, token: u32) {
  let a = load_rows(k, row);
  let x0 = load_token(k, token);
  (*sums).a0 = add_products((*sums).a0, a, x0);
  let x1 = load_token(k, token + token_lanes);
  (*sums).a1 = add_products((*sums).a1, a, x1);
  let x2 = load_token(k, token + 2u * token_lanes);
  (*sums).a2 = add_products((*sums).a2, a, x2);
  let x3 = load_token(k, token + 3u * token_lanes);
  (*sums).a3 = add_products((*sums).a3, a, x3);
}

fn finish(place: Place, sums: ptr<function, Sums>) {
  emit(place, place.token, 0u, (*sums).a0);
  emit(place, place.token + token_lanes, 0u, (*sums).a1);
  emit(place, place.token + 2u * token_lanes, 0u, (*sums).a2);
  emit(place, place.token + 3u * token_lanes, 0u, (*sums).a3);
}
