// A subgroup's share of the tile: 32 tokens by 32 rows, in matrices of 16 × 16. Remainders tell the compiler that offsets
// lie within the tiles: then loads need no checks, which would halve their pace.
const kTokenGroups = 2u;  // subgroups along the tokens
const kRowGroups = 2u;
const kShareTokens = 32u;

struct Sums {
  s00: Result,
  s01: Result,
  s10: Result,
  s11: Result,
}

// Adds the products of a step, 64 columns.
fn accumulate(sums: ptr<function, Sums>, lane: u32) {
  for (var k = 0u; k < 8u; k += 2u) {
    let t = lane / kLanes / kRowGroups % kTokenGroups * kShareTokens * kLine + k % 8u;
    let r = lane / kLanes % kRowGroups * kShareRows * kLine + k % 8u;
    let r0 = subgroupMatrixLoad<Right, col_major>(&w_tile, r, kLine);
    let r1 = subgroupMatrixLoad<Right, col_major>(&w_tile, r + 16u * kLine, kLine);
    let t0 = subgroupMatrixLoad<Left, row_major>(&x_tile, t, kLine);
    (*sums).s00 = subgroupMatrixMultiplyAccumulate(t0, r0, (*sums).s00);
    (*sums).s01 = subgroupMatrixMultiplyAccumulate(t0, r1, (*sums).s01);
    let t1 = subgroupMatrixLoad<Left, row_major>(&x_tile, t + 16u * kLine, kLine);
    (*sums).s10 = subgroupMatrixMultiplyAccumulate(t1, r0, (*sums).s10);
    (*sums).s11 = subgroupMatrixMultiplyAccumulate(t1, r1, (*sums).s11);
  }
}

fn finish(place: Place, sums: ptr<function, Sums>) {
  emit(place, 0u, (*sums).s00, (*sums).s01);
  emit(place, 16u, (*sums).s10, (*sums).s11);
}
