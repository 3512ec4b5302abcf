// The tiles of one piece, 32 columns, in workgroup memory, and the way into them.
override row_lanes: u32 = 16;    // threads along the rows, a multiple of 8
override token_lanes: u32 = 16;  // threads along the tokens
override threads: u32 = row_lanes * token_lanes;
override tile_rows: u32 = row_lanes * kThreadRows;
override tile_tokens: u32 = token_lanes * kThreadTokens;

// [eight groups k of 4 columns][row or token]. Number n lies at n ^ k, so that threads that store several groups of one
// token use different banks.
var<workgroup> w_tile: array<Held, tile_rows * 8u>;
var<workgroup> x_tile: array<vec4<f32>, tile_tokens * 8u>;

struct Place {
  lane: u32,
  first_row: u32,    // of the tile, in W
  first_token: u32,  // of the tile
  row: u32,          // of this thread, in the tile: its first
  token: u32,
  split: u32,
}

// Four columns of four rows; of one token.
struct Rows {
  v0: vec4<f32>,
  v1: vec4<f32>,
  v2: vec4<f32>,
  v3: vec4<f32>,
}
struct Token {
  v: vec4<f32>,
}

// Rows and tokens past the end are read from the last one: their sums are not stored.
fn store(place: Place, piece: u32) {
  for (var i = place.lane; i < tile_rows; i += threads) {
    let v = raw_values(load_raw(weight_row(place, i) * params.stride, piece, params.pieces), piece);
    w_tile[i] = Held(v.a);
    w_tile[tile_rows + (i ^ 1u)] = Held(v.b);
    w_tile[2u * tile_rows + (i ^ 2u)] = Held(v.c);
    w_tile[3u * tile_rows + (i ^ 3u)] = Held(v.d);
    w_tile[4u * tile_rows + (i ^ 4u)] = Held(v.e);
    w_tile[5u * tile_rows + (i ^ 5u)] = Held(v.f);
    w_tile[6u * tile_rows + (i ^ 6u)] = Held(v.g);
    w_tile[7u * tile_rows + (i ^ 7u)] = Held(v.h);
  }
  for (var i = place.lane; i < tile_tokens * 8u; i += threads) {
    let token = i / 8u;
    let k = i % 8u;
    x_tile[k * tile_tokens + (token ^ k)] = x_quad(x_token(place, token), piece * 32u + k * 4u);
  }
}

fn load_rows(k: u32, row: u32) -> Rows {
  let at = k * tile_rows + (row ^ k);
  return Rows(vec4<f32>(w_tile[at]), vec4<f32>(w_tile[at + row_lanes]), vec4<f32>(w_tile[at + 2u * row_lanes]),
              vec4<f32>(w_tile[at + 3u * row_lanes]));
}
fn load_token(k: u32, token: u32) -> Token {
  return Token(x_tile[k * tile_tokens + (token ^ k)]);
}

fn add_products(sums: vec4<f32>, r: Rows, x: Token) -> vec4<f32> {
  var v = fma(vec4<f32>(r.v0.x, r.v1.x, r.v2.x, r.v3.x), vec4<f32>(x.v.x), sums);
  v = fma(vec4<f32>(r.v0.y, r.v1.y, r.v2.y, r.v3.y), vec4<f32>(x.v.y), v);
  v = fma(vec4<f32>(r.v0.z, r.v1.z, r.v2.z, r.v3.z), vec4<f32>(x.v.z), v);
  return fma(vec4<f32>(r.v0.w, r.v1.w, r.v2.w, r.v3.w), vec4<f32>(x.v.w), v);
}
