// A thread's share of the tile: 4 rows, `row_lanes` apart, by 8 tokens, `token_lanes` apart. Written out, because arrays
// indexed in a loop do not surely live in registers.
const kThreadRows: u32 = 4;
const kThreadTokens: u32 = 8;

struct Sums {  // a vector holds four rows of one token
  a0: vec4<f32>,
  a1: vec4<f32>,
  a2: vec4<f32>,
  a3: vec4<f32>,
  a4: vec4<f32>,
  a5: vec4<f32>,
  a6: vec4<f32>,
  a7: vec4<f32>,
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
  let x4 = load_token(k, token + 4u * token_lanes);
  (*sums).a4 = add_products((*sums).a4, a, x4);
  let x5 = load_token(k, token + 5u * token_lanes);
  (*sums).a5 = add_products((*sums).a5, a, x5);
  let x6 = load_token(k, token + 6u * token_lanes);
  (*sums).a6 = add_products((*sums).a6, a, x6);
  let x7 = load_token(k, token + 7u * token_lanes);
  (*sums).a7 = add_products((*sums).a7, a, x7);
}

fn finish(place: Place, sums: ptr<function, Sums>) {
  emit(place, place.token, 0u, (*sums).a0);
  emit(place, place.token + token_lanes, 0u, (*sums).a1);
  emit(place, place.token + 2u * token_lanes, 0u, (*sums).a2);
  emit(place, place.token + 3u * token_lanes, 0u, (*sums).a3);
  emit(place, place.token + 4u * token_lanes, 0u, (*sums).a4);
  emit(place, place.token + 5u * token_lanes, 0u, (*sums).a5);
  emit(place, place.token + 6u * token_lanes, 0u, (*sums).a6);
  emit(place, place.token + 7u * token_lanes, 0u, (*sums).a7);
}
