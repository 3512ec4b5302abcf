// The products of a few rows by a few columns in one thread, and how a team shares out its sums. Written out, because
// arrays indexed in a loop do not surely live in registers.

// snippet: team_spread = subgroup
enable subgroups;
diagnostic(off, subgroup_uniformity);

// Sums over a team, as team_sum() makes them, but every thread ends with a few of them instead of all: at each step it
// hands one half of what it has to a partner and adds what the partner hands back. What is left comes to emit_four(),
// emit_pair() or emit_one(): of vector v of the tile, component c.
fn is_upper(thread: u32, distance: u32) -> bool {
  return (thread & distance) != 0u;
}
fn halve(low: vec4<f32>, high: vec4<f32>, thread: u32, distance: u32) -> vec4<f32> {
  let upper = is_upper(thread, distance);
  return select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), distance);
}
fn spread_row(at: Place, sum: f32, distance: u32, v: u32, c: u32) {
  var total = sum;
  for (var d = distance; d > 0u; d /= 2u) {
    total += subgroupShuffleXor(total, d);
  }
  if ((at.thread & (max(2u * distance, 1u) - 1u)) == 0u) {
    emit_one(at, v, c, total);
  }
}
fn spread_pair(at: Place, pair: vec2<f32>, distance: u32, v: u32, c: u32) {
  if (glu > 0u || distance == 0u) {  // whose halves stay together
    var total = pair;
    for (var d = distance; d > 0u; d /= 2u) {
      total += subgroupShuffleXor(total, d);
    }
    if ((at.thread & (max(2u * distance, 1u) - 1u)) == 0u) {
      emit_pair(at, v, c, total);
    }
    return;
  }
  let upper = is_upper(at.thread, distance);
  let sum = select(pair.x, pair.y, upper) + subgroupShuffleXor(select(pair.y, pair.x, upper), distance);
  spread_row(at, sum, distance / 2u, v, c + select(0u, 1u, upper));
}
fn spread_one(at: Place, s0: vec4<f32>, distance: u32, v: u32) {
  if (distance == 0u) {
    emit_four(at, v, s0);
    return;
  }
  let upper = is_upper(at.thread, distance);
  let pair = select(s0.xy, s0.zw, upper) + subgroupShuffleXor(select(s0.zw, s0.xy, upper), distance);
  spread_pair(at, pair, distance / 2u, v, select(0u, 2u, upper));
}
fn spread_two(at: Place, s0: vec4<f32>, s1: vec4<f32>, distance: u32, v: u32) {
  if (distance == 0u) {
    emit_four(at, v + 0u, s0);
    emit_four(at, v + 1u, s1);
    return;
  }
  spread_one(at, halve(s0, s1, at.thread, distance), distance / 2u,
    v + select(0u, 1u, is_upper(at.thread, distance)));
}
fn spread_four(at: Place, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, distance: u32, v: u32) {
  if (distance == 0u) {
    emit_four(at, v + 0u, s0);
    emit_four(at, v + 1u, s1);
    emit_four(at, v + 2u, s2);
    emit_four(at, v + 3u, s3);
    return;
  }
  spread_two(at, halve(s0, s2, at.thread, distance), halve(s1, s3, at.thread, distance), distance / 2u,
    v + select(0u, 2u, is_upper(at.thread, distance)));
}
fn spread_eight(at: Place, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, s4: vec4<f32>, s5: vec4<f32>, s6: vec4<f32>, s7: vec4<f32>, distance: u32, v: u32) {
  if (distance == 0u) {
    emit_four(at, v + 0u, s0);
    emit_four(at, v + 1u, s1);
    emit_four(at, v + 2u, s2);
    emit_four(at, v + 3u, s3);
    emit_four(at, v + 4u, s4);
    emit_four(at, v + 5u, s5);
    emit_four(at, v + 6u, s6);
    emit_four(at, v + 7u, s7);
    return;
  }
  spread_four(at, halve(s0, s4, at.thread, distance), halve(s1, s5, at.thread, distance), halve(s2, s6, at.thread, distance), halve(s3, s7, at.thread, distance), distance / 2u,
    v + select(0u, 4u, is_upper(at.thread, distance)));
}
fn spread_sixteen(at: Place, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, s4: vec4<f32>, s5: vec4<f32>, s6: vec4<f32>, s7: vec4<f32>, s8: vec4<f32>, s9: vec4<f32>, s10: vec4<f32>, s11: vec4<f32>, s12: vec4<f32>, s13: vec4<f32>, s14: vec4<f32>, s15: vec4<f32>, distance: u32, v: u32) {
  if (distance == 0u) {
    emit_four(at, v + 0u, s0);
    emit_four(at, v + 1u, s1);
    emit_four(at, v + 2u, s2);
    emit_four(at, v + 3u, s3);
    emit_four(at, v + 4u, s4);
    emit_four(at, v + 5u, s5);
    emit_four(at, v + 6u, s6);
    emit_four(at, v + 7u, s7);
    emit_four(at, v + 8u, s8);
    emit_four(at, v + 9u, s9);
    emit_four(at, v + 10u, s10);
    emit_four(at, v + 11u, s11);
    emit_four(at, v + 12u, s12);
    emit_four(at, v + 13u, s13);
    emit_four(at, v + 14u, s14);
    emit_four(at, v + 15u, s15);
    return;
  }
  spread_eight(at, halve(s0, s8, at.thread, distance), halve(s1, s9, at.thread, distance), halve(s2, s10, at.thread, distance), halve(s3, s11, at.thread, distance), halve(s4, s12, at.thread, distance), halve(s5, s13, at.thread, distance), halve(s6, s14, at.thread, distance), halve(s7, s15, at.thread, distance), distance / 2u,
    v + select(0u, 8u, is_upper(at.thread, distance)));
}

// snippet: team_spread = plain
// The same through team_sum(): the thread of a vector's number has all four of its sums.
fn spread_one(at: Place, s0: vec4<f32>, distance: u32, v: u32) {
  let total = team_sum(s0, at.thread);
  if (at.thread % lanes == v % lanes) {
    emit_four(at, v, total);
  }
}
fn spread_two(at: Place, s0: vec4<f32>, s1: vec4<f32>, distance: u32, v: u32) {
  spread_one(at, s0, distance, v + 0u);
  spread_one(at, s1, distance, v + 1u);
}
fn spread_four(at: Place, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, distance: u32, v: u32) {
  spread_one(at, s0, distance, v + 0u);
  spread_one(at, s1, distance, v + 1u);
  spread_one(at, s2, distance, v + 2u);
  spread_one(at, s3, distance, v + 3u);
}
fn spread_eight(at: Place, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, s4: vec4<f32>, s5: vec4<f32>, s6: vec4<f32>, s7: vec4<f32>, distance: u32, v: u32) {
  spread_one(at, s0, distance, v + 0u);
  spread_one(at, s1, distance, v + 1u);
  spread_one(at, s2, distance, v + 2u);
  spread_one(at, s3, distance, v + 3u);
  spread_one(at, s4, distance, v + 4u);
  spread_one(at, s5, distance, v + 5u);
  spread_one(at, s6, distance, v + 6u);
  spread_one(at, s7, distance, v + 7u);
}
fn spread_sixteen(at: Place, s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>, s4: vec4<f32>, s5: vec4<f32>, s6: vec4<f32>, s7: vec4<f32>, s8: vec4<f32>, s9: vec4<f32>, s10: vec4<f32>, s11: vec4<f32>, s12: vec4<f32>, s13: vec4<f32>, s14: vec4<f32>, s15: vec4<f32>, distance: u32, v: u32) {
  spread_one(at, s0, distance, v + 0u);
  spread_one(at, s1, distance, v + 1u);
  spread_one(at, s2, distance, v + 2u);
  spread_one(at, s3, distance, v + 3u);
  spread_one(at, s4, distance, v + 4u);
  spread_one(at, s5, distance, v + 5u);
  spread_one(at, s6, distance, v + 6u);
  spread_one(at, s7, distance, v + 7u);
  spread_one(at, s8, distance, v + 8u);
  spread_one(at, s9, distance, v + 9u);
  spread_one(at, s10, distance, v + 10u);
  spread_one(at, s11, distance, v + 11u);
  spread_one(at, s12, distance, v + 12u);
  spread_one(at, s13, distance, v + 13u);
  spread_one(at, s14, distance, v + 14u);
  spread_one(at, s15, distance, v + 15u);
}

// snippet: column_sums = r4c2
// A vector holds four rows of one column; behind those of the first four rows come those of the next four.
const kRows: u32 = 4;
const kColumns: u32 = 2;

struct Sums {
  s0: vec4<f32>,
  s1: vec4<f32>,
}
struct Rows {
  a: FourRows,
}
fn load_rows(row: u32, piece: u32) -> Rows {
  return Rows(four_rows(row, piece));
}
// last: of the columns that there are.
fn add_columns(sums: ptr<function, Sums>, rows: Rows, piece: u32, first: u32, last: u32) {
  let x0 = x_piece(min(first, last), piece);
  (*sums).s0 = add_rows((*sums).s0, rows.a, piece, x0);
  let x1 = x_piece(min(first + 1u, last), piece);
  (*sums).s1 = add_rows((*sums).s1, rows.a, piece, x1);
}
fn spread_sums(at: Place, s: ptr<function, Sums>) {
  spread_two(at, (*s).s0, (*s).s1, lanes / 2u, 0u);
}

// snippet: column_sums = r4c4
const kRows: u32 = 4;
const kColumns: u32 = 4;

struct Sums {
  s0: vec4<f32>,
  s1: vec4<f32>,
  s2: vec4<f32>,
  s3: vec4<f32>,
}
struct Rows {
  a: FourRows,
}
fn load_rows(row: u32, piece: u32) -> Rows {
  return Rows(four_rows(row, piece));
}
// last: of the columns that there are.
fn add_columns(sums: ptr<function, Sums>, rows: Rows, piece: u32, first: u32, last: u32) {
  let x0 = x_piece(min(first, last), piece);
  (*sums).s0 = add_rows((*sums).s0, rows.a, piece, x0);
  let x1 = x_piece(min(first + 1u, last), piece);
  (*sums).s1 = add_rows((*sums).s1, rows.a, piece, x1);
  let x2 = x_piece(min(first + 2u, last), piece);
  (*sums).s2 = add_rows((*sums).s2, rows.a, piece, x2);
  let x3 = x_piece(min(first + 3u, last), piece);
  (*sums).s3 = add_rows((*sums).s3, rows.a, piece, x3);
}
fn spread_sums(at: Place, s: ptr<function, Sums>) {
  spread_four(at, (*s).s0, (*s).s1, (*s).s2, (*s).s3, lanes / 2u, 0u);
}

// snippet: column_sums = r4c8
const kRows: u32 = 4;
const kColumns: u32 = 8;

struct Sums {
  s0: vec4<f32>,
  s1: vec4<f32>,
  s2: vec4<f32>,
  s3: vec4<f32>,
  s4: vec4<f32>,
  s5: vec4<f32>,
  s6: vec4<f32>,
  s7: vec4<f32>,
}
struct Rows {
  a: FourRows,
}
fn load_rows(row: u32, piece: u32) -> Rows {
  return Rows(four_rows(row, piece));
}
// last: of the columns that there are.
fn add_columns(sums: ptr<function, Sums>, rows: Rows, piece: u32, first: u32, last: u32) {
  let x0 = x_piece(min(first, last), piece);
  (*sums).s0 = add_rows((*sums).s0, rows.a, piece, x0);
  let x1 = x_piece(min(first + 1u, last), piece);
  (*sums).s1 = add_rows((*sums).s1, rows.a, piece, x1);
  let x2 = x_piece(min(first + 2u, last), piece);
  (*sums).s2 = add_rows((*sums).s2, rows.a, piece, x2);
  let x3 = x_piece(min(first + 3u, last), piece);
  (*sums).s3 = add_rows((*sums).s3, rows.a, piece, x3);
  let x4 = x_piece(min(first + 4u, last), piece);
  (*sums).s4 = add_rows((*sums).s4, rows.a, piece, x4);
  let x5 = x_piece(min(first + 5u, last), piece);
  (*sums).s5 = add_rows((*sums).s5, rows.a, piece, x5);
  let x6 = x_piece(min(first + 6u, last), piece);
  (*sums).s6 = add_rows((*sums).s6, rows.a, piece, x6);
  let x7 = x_piece(min(first + 7u, last), piece);
  (*sums).s7 = add_rows((*sums).s7, rows.a, piece, x7);
}
fn spread_sums(at: Place, s: ptr<function, Sums>) {
  spread_eight(at, (*s).s0, (*s).s1, (*s).s2, (*s).s3, (*s).s4, (*s).s5, (*s).s6, (*s).s7, lanes / 2u, 0u);
}

// snippet: column_sums = r8c8
const kRows: u32 = 8;
const kColumns: u32 = 8;

struct Sums {
  s0: vec4<f32>,
  s1: vec4<f32>,
  s2: vec4<f32>,
  s3: vec4<f32>,
  s4: vec4<f32>,
  s5: vec4<f32>,
  s6: vec4<f32>,
  s7: vec4<f32>,
  s8: vec4<f32>,
  s9: vec4<f32>,
  s10: vec4<f32>,
  s11: vec4<f32>,
  s12: vec4<f32>,
  s13: vec4<f32>,
  s14: vec4<f32>,
  s15: vec4<f32>,
}
struct Rows {
  a: FourRows,
  b: FourRows,
}
fn load_rows(row: u32, piece: u32) -> Rows {
  return Rows(four_rows(row, piece), four_rows(row + 4u, piece));
}
// last: of the columns that there are.
fn add_columns(sums: ptr<function, Sums>, rows: Rows, piece: u32, first: u32, last: u32) {
  let x0 = x_piece(min(first, last), piece);
  (*sums).s0 = add_rows((*sums).s0, rows.a, piece, x0);
  (*sums).s8 = add_rows((*sums).s8, rows.b, piece, x0);
  let x1 = x_piece(min(first + 1u, last), piece);
  (*sums).s1 = add_rows((*sums).s1, rows.a, piece, x1);
  (*sums).s9 = add_rows((*sums).s9, rows.b, piece, x1);
  let x2 = x_piece(min(first + 2u, last), piece);
  (*sums).s2 = add_rows((*sums).s2, rows.a, piece, x2);
  (*sums).s10 = add_rows((*sums).s10, rows.b, piece, x2);
  let x3 = x_piece(min(first + 3u, last), piece);
  (*sums).s3 = add_rows((*sums).s3, rows.a, piece, x3);
  (*sums).s11 = add_rows((*sums).s11, rows.b, piece, x3);
  let x4 = x_piece(min(first + 4u, last), piece);
  (*sums).s4 = add_rows((*sums).s4, rows.a, piece, x4);
  (*sums).s12 = add_rows((*sums).s12, rows.b, piece, x4);
  let x5 = x_piece(min(first + 5u, last), piece);
  (*sums).s5 = add_rows((*sums).s5, rows.a, piece, x5);
  (*sums).s13 = add_rows((*sums).s13, rows.b, piece, x5);
  let x6 = x_piece(min(first + 6u, last), piece);
  (*sums).s6 = add_rows((*sums).s6, rows.a, piece, x6);
  (*sums).s14 = add_rows((*sums).s14, rows.b, piece, x6);
  let x7 = x_piece(min(first + 7u, last), piece);
  (*sums).s7 = add_rows((*sums).s7, rows.a, piece, x7);
  (*sums).s15 = add_rows((*sums).s15, rows.b, piece, x7);
}
fn spread_sums(at: Place, s: ptr<function, Sums>) {
  spread_sixteen(at, (*s).s0, (*s).s1, (*s).s2, (*s).s3, (*s).s4, (*s).s5, (*s).s6, (*s).s7, (*s).s8, (*s).s9, (*s).s10, (*s).s11, (*s).s12, (*s).s13, (*s).s14, (*s).s15, lanes / 2u, 0u);
}
