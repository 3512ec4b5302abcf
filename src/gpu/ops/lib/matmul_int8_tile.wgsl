// The tiles of one step, 64 columns or two pieces, in workgroup memory, and the way into them.
override row_lanes: u32 = 16;    // threads along the rows, a multiple of 8
override token_lanes: u32 = 16;  // threads along the tokens
override buffers: u32 = 1;       // 2: a step is stored while the one before is still read; one barrier less per step
override prefetch: bool = true;
override magic: bool = true;     // integers become floats by an addition rather than by a conversion
override threads: u32 = row_lanes * token_lanes;
override tile_rows: u32 = row_lanes * kThreadRows;
override tile_tokens: u32 = token_lanes * kThreadTokens;
// What a step has to bring in: pieces of W, groups of 16 columns of x, scales of x. Conditions below compare them with
// `threads` first, so that what a tile does not need is gone when the kernel is compiled.
override units: u32 = tile_rows * 2u;
override quads: u32 = tile_tokens * 4u;
override pairs: u32 = tile_tokens * 2u;

// [buffer][four groups of 16 columns][row or token]. In the second piece rows trade places with the row four away, so
// that the threads that store the two pieces of a row use different banks.
var<workgroup> w_tile: array<vec4<u32>, tile_rows * 4u * buffers>;
var<workgroup> x_tile: array<vec4<u32>, tile_tokens * 4u * buffers>;
var<workgroup> w_factors: array<vec2<f32>, tile_rows * 2u * buffers>;  // [buffer][piece][row], see raw_factors()
var<workgroup> x_factors: array<vec2<f32>, tile_tokens * 2u * buffers>;

struct Place {
  lane: u32,
  first_row: u32,    // of the tile, in W
  first_token: u32,  // of the tile
  row: u32,          // of this thread, in the tile: its first
  token: u32,
  split: u32,
}

// Four rows' bytes and factors of one piece; one token's.
struct Rows {
  low0: vec4<u32>,
  high0: vec4<u32>,
  low1: vec4<u32>,
  high1: vec4<u32>,
  low2: vec4<u32>,
  high2: vec4<u32>,
  low3: vec4<u32>,
  high3: vec4<u32>,
  s: vec4<f32>,
  t: vec4<f32>,
}
struct Token {
  low: vec4<u32>,
  high: vec4<u32>,
  s: vec2<f32>,
}

// What a thread brings in for a step: up to two pieces of W, four groups of 16 columns of x, two scales of x.
struct Fetched {
  w0: Raw,
  w1: Raw,
  x0: vec4<u32>,
  x1: vec4<u32>,
  x2: vec4<u32>,
  x3: vec4<u32>,
  s0: vec2<f32>,
  s1: vec2<f32>,
}

// Rows, tokens and pieces past the end are read from the last one: their sums are not stored, their factors are zero.
fn fetch_weight(place: Place, step: u32, unit: u32) -> Raw {
  let piece = min(step * 2u + unit % 2u, params.pieces - 1u);
  return load_raw(weight_row(place, unit / 2u) * params.stride, piece);
}
fn fetch_values(place: Place, step: u32, i: u32) -> vec4<u32> {
  return x[(step * 4u + i / tile_tokens) * params.tokens + x_token(place, i % tile_tokens)];
}
fn fetch_scale(place: Place, step: u32, i: u32) -> vec2<f32> {
  return x_scales[(step * 2u + i / tile_tokens) * params.tokens + x_token(place, i % tile_tokens)];
}

fn fetch(place: Place, step: u32) -> Fetched {
  var f: Fetched;
  let i = place.lane;
  if (units >= threads || i < units) {
    f.w0 = fetch_weight(place, step, i);
  }
  if (units > threads) {
    f.w1 = fetch_weight(place, step, i + threads);
  }
  if (quads >= threads || i < quads) {
    f.x0 = fetch_values(place, step, i);
  }
  if (quads > threads) {
    f.x1 = fetch_values(place, step, i + threads);
  }
  if (quads > 2u * threads) {
    f.x2 = fetch_values(place, step, i + 2u * threads);
    f.x3 = fetch_values(place, step, i + 3u * threads);
  }
  if (pairs >= threads || i < pairs) {
    f.s0 = fetch_scale(place, step, i);
  }
  if (pairs > threads) {
    f.s1 = fetch_scale(place, step, i + threads);
  }
  return f;
}

fn store_weight(step: u32, buffer: u32, unit: u32, raw: Raw) {
  let row = unit / 2u;
  let piece = unit % 2u;
  let at = (buffer * 2u + piece) * 2u * tile_rows + (row ^ (piece * 4u));
  w_tile[at] = raw_low(raw);
  w_tile[at + tile_rows] = raw_high(raw);
  var factors = vec2<f32>(0.0);
  if (step * 2u + piece < params.pieces) {
    factors = raw_factors(raw, step * 2u + piece);
  }
  w_factors[(buffer * 2u + piece) * tile_rows + row] = factors;
}

fn store(place: Place, step: u32, buffer: u32, f: Fetched) {
  let i = place.lane;
  if (units >= threads || i < units) {
    store_weight(step, buffer, i, f.w0);
  }
  if (units > threads) {
    store_weight(step, buffer, i + threads, f.w1);
  }
  let at = buffer * quads + i;
  if (quads >= threads || i < quads) {
    x_tile[at] = f.x0;
  }
  if (quads > threads) {
    x_tile[at + threads] = f.x1;
  }
  if (quads > 2u * threads) {
    x_tile[at + 2u * threads] = f.x2;
    x_tile[at + 3u * threads] = f.x3;
  }
  if (pairs >= threads || i < pairs) {
    x_factors[buffer * pairs + i] = f.s0;
  }
  if (pairs > threads) {
    x_factors[buffer * pairs + i + threads] = f.s1;
  }
}

// k: piece of the tile, buffer · 2 + piece.
fn load_rows(k: u32, row: u32) -> Rows {
  let at = k * 2u * tile_rows + (row ^ ((k & 1u) * 4u));
  let f = k * tile_rows + row;
  let f0 = w_factors[f];
  let f1 = w_factors[f + row_lanes];
  let f2 = w_factors[f + 2u * row_lanes];
  let f3 = w_factors[f + 3u * row_lanes];
  return Rows(w_tile[at], w_tile[at + tile_rows],
              w_tile[at + row_lanes], w_tile[at + tile_rows + row_lanes],
              w_tile[at + 2u * row_lanes], w_tile[at + tile_rows + 2u * row_lanes],
              w_tile[at + 3u * row_lanes], w_tile[at + tile_rows + 3u * row_lanes],
              vec4<f32>(f0.x, f1.x, f2.x, f3.x), vec4<f32>(f0.y, f1.y, f2.y, f3.y));
}
fn load_token(k: u32, token: u32) -> Token {
  let at = k * 2u * tile_tokens + token;
  return Token(x_tile[at], x_tile[at + tile_tokens], x_factors[k * tile_tokens + token]);
}

// A sum of at most 32 products of bytes stays below 2^22, so it can be counted in the mantissa of 1.5 · 2^23.
const kMagic: f32 = 12582912.0;
const kMagicBits: i32 = 0x4b400000;

fn sum_start() -> i32 {
  return select(0, kMagicBits, magic);
}
fn sum_value(sum: i32) -> f32 {
  if (magic) {
    return bitcast<f32>(sum) - kMagic;
  }
  return f32(sum);
}
fn sum16(sum: i32, a: vec4<u32>, b: vec4<u32>) -> i32 {
  return sum + dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
// Exact sums of four rows with a token: of the first 16 columns, the last 16, all 32.
fn sums_low(r: Rows, x: Token) -> vec4<f32> {
  let zero = sum_start();
  return vec4<f32>(sum_value(sum16(zero, r.low0, x.low)), sum_value(sum16(zero, r.low1, x.low)),
                   sum_value(sum16(zero, r.low2, x.low)), sum_value(sum16(zero, r.low3, x.low)));
}
fn sums_high(r: Rows, x: Token) -> vec4<f32> {
  let zero = sum_start();
  return vec4<f32>(sum_value(sum16(zero, r.high0, x.high)), sum_value(sum16(zero, r.high1, x.high)),
                   sum_value(sum16(zero, r.high2, x.high)), sum_value(sum16(zero, r.high3, x.high)));
}
fn sums_all(r: Rows, x: Token) -> vec4<f32> {
  let zero = sum_start();
  return vec4<f32>(sum_value(sum16(sum16(zero, r.low0, x.low), r.high0, x.high)),
                   sum_value(sum16(sum16(zero, r.low1, x.low), r.high1, x.high)),
                   sum_value(sum16(sum16(zero, r.low2, x.low), r.high2, x.high)),
                   sum_value(sum16(sum16(zero, r.low3, x.low), r.high3, x.high)));
}
