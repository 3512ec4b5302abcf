// snippet: thread_tile = r4t4
// A thread's tile: 4 rows, `row_lanes` apart, by 4 tokens, `token_lanes` apart. Written out, because arrays
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

fn store_sums(place: Place, sums: ptr<function, Sums>) {
  emit(place, place.token, 0u, (*sums).a0);
  emit(place, place.token + token_lanes, 0u, (*sums).a1);
  emit(place, place.token + 2u * token_lanes, 0u, (*sums).a2);
  emit(place, place.token + 3u * token_lanes, 0u, (*sums).a3);
}

// snippet: thread_tile = r4t8
// A thread's tile: 4 rows, `row_lanes` apart, by 8 tokens, `token_lanes` apart. Written out, because arrays
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

fn store_sums(place: Place, sums: ptr<function, Sums>) {
  emit(place, place.token, 0u, (*sums).a0);
  emit(place, place.token + token_lanes, 0u, (*sums).a1);
  emit(place, place.token + 2u * token_lanes, 0u, (*sums).a2);
  emit(place, place.token + 3u * token_lanes, 0u, (*sums).a3);
  emit(place, place.token + 4u * token_lanes, 0u, (*sums).a4);
  emit(place, place.token + 5u * token_lanes, 0u, (*sums).a5);
  emit(place, place.token + 6u * token_lanes, 0u, (*sums).a6);
  emit(place, place.token + 7u * token_lanes, 0u, (*sums).a7);
}

// snippet: thread_tile = r8t4
// A thread's tile: 8 rows, `row_lanes` apart, by 4 tokens, `token_lanes` apart. Written out, because arrays
// indexed in a loop do not surely live in registers.
const kThreadRows: u32 = 8;
const kThreadTokens: u32 = 4;

struct Sums {  // a vector holds four rows of one token
  a0: vec4<f32>,
  b0: vec4<f32>,
  a1: vec4<f32>,
  b1: vec4<f32>,
  a2: vec4<f32>,
  b2: vec4<f32>,
  a3: vec4<f32>,
  b3: vec4<f32>,
}

// Adds the products of unit k of the tile. row, token: this thread's first ones in the tile.
fn accumulate(sums: ptr<function, Sums>, k: u32, row: u32, token: u32) {
  let a = load_rows(k, row);
  let b = load_rows(k, row + 4u * row_lanes);
  let x0 = load_token(k, token);
  (*sums).a0 = add_products((*sums).a0, a, x0);
  (*sums).b0 = add_products((*sums).b0, b, x0);
  let x1 = load_token(k, token + token_lanes);
  (*sums).a1 = add_products((*sums).a1, a, x1);
  (*sums).b1 = add_products((*sums).b1, b, x1);
  let x2 = load_token(k, token + 2u * token_lanes);
  (*sums).a2 = add_products((*sums).a2, a, x2);
  (*sums).b2 = add_products((*sums).b2, b, x2);
  let x3 = load_token(k, token + 3u * token_lanes);
  (*sums).a3 = add_products((*sums).a3, a, x3);
  (*sums).b3 = add_products((*sums).b3, b, x3);
}

fn store_sums(place: Place, sums: ptr<function, Sums>) {
  emit_pair(place, place.token, (*sums).a0, (*sums).b0);
  emit_pair(place, place.token + token_lanes, (*sums).a1, (*sums).b1);
  emit_pair(place, place.token + 2u * token_lanes, (*sums).a2, (*sums).b2);
  emit_pair(place, place.token + 3u * token_lanes, (*sums).a3, (*sums).b3);
}

// snippet: thread_tile = r8t8
// A thread's tile: 8 rows, `row_lanes` apart, by 8 tokens, `token_lanes` apart. Written out, because arrays
// indexed in a loop do not surely live in registers.
const kThreadRows: u32 = 8;
const kThreadTokens: u32 = 8;

struct Sums {  // a vector holds four rows of one token
  a0: vec4<f32>,
  b0: vec4<f32>,
  a1: vec4<f32>,
  b1: vec4<f32>,
  a2: vec4<f32>,
  b2: vec4<f32>,
  a3: vec4<f32>,
  b3: vec4<f32>,
  a4: vec4<f32>,
  b4: vec4<f32>,
  a5: vec4<f32>,
  b5: vec4<f32>,
  a6: vec4<f32>,
  b6: vec4<f32>,
  a7: vec4<f32>,
  b7: vec4<f32>,
}

// Adds the products of unit k of the tile. row, token: this thread's first ones in the tile.
fn accumulate(sums: ptr<function, Sums>, k: u32, row: u32, token: u32) {
  let a = load_rows(k, row);
  let b = load_rows(k, row + 4u * row_lanes);
  let x0 = load_token(k, token);
  (*sums).a0 = add_products((*sums).a0, a, x0);
  (*sums).b0 = add_products((*sums).b0, b, x0);
  let x1 = load_token(k, token + token_lanes);
  (*sums).a1 = add_products((*sums).a1, a, x1);
  (*sums).b1 = add_products((*sums).b1, b, x1);
  let x2 = load_token(k, token + 2u * token_lanes);
  (*sums).a2 = add_products((*sums).a2, a, x2);
  (*sums).b2 = add_products((*sums).b2, b, x2);
  let x3 = load_token(k, token + 3u * token_lanes);
  (*sums).a3 = add_products((*sums).a3, a, x3);
  (*sums).b3 = add_products((*sums).b3, b, x3);
  let x4 = load_token(k, token + 4u * token_lanes);
  (*sums).a4 = add_products((*sums).a4, a, x4);
  (*sums).b4 = add_products((*sums).b4, b, x4);
  let x5 = load_token(k, token + 5u * token_lanes);
  (*sums).a5 = add_products((*sums).a5, a, x5);
  (*sums).b5 = add_products((*sums).b5, b, x5);
  let x6 = load_token(k, token + 6u * token_lanes);
  (*sums).a6 = add_products((*sums).a6, a, x6);
  (*sums).b6 = add_products((*sums).b6, b, x6);
  let x7 = load_token(k, token + 7u * token_lanes);
  (*sums).a7 = add_products((*sums).a7, a, x7);
  (*sums).b7 = add_products((*sums).b7, b, x7);
}

fn store_sums(place: Place, sums: ptr<function, Sums>) {
  emit_pair(place, place.token, (*sums).a0, (*sums).b0);
  emit_pair(place, place.token + token_lanes, (*sums).a1, (*sums).b1);
  emit_pair(place, place.token + 2u * token_lanes, (*sums).a2, (*sums).b2);
  emit_pair(place, place.token + 3u * token_lanes, (*sums).a3, (*sums).b3);
  emit_pair(place, place.token + 4u * token_lanes, (*sums).a4, (*sums).b4);
  emit_pair(place, place.token + 5u * token_lanes, (*sums).a5, (*sums).b5);
  emit_pair(place, place.token + 6u * token_lanes, (*sums).a6, (*sums).b6);
  emit_pair(place, place.token + 7u * token_lanes, (*sums).a7, (*sums).b7);
}
