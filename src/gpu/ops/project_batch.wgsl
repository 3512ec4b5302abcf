// The projections of decode for the tokens of many sequences, a column each, in one pass over the weights. A column's
// numbers are those that project.wgsl and project_norm.wgsl make of it alone, bit for bit: the same threads add up the
// same pieces in the same order. State: `position` is how many columns there are, a grid may have more. What makes logits
// (`last`) takes `draw` of them, from column `token` on.

// kernel: batch_norm
// x of norm(r) for every column (lib/residual_norm.wgsl), without the norm's factor, which goes to `norm_factors`.
// use: state
// use: x_piece = none | int8
// use: x_row = float | int8
// use: group_sum = plain | subgroup
// use: residual_norm

override lanes: u32 = 32;   // lanes · groups threads: those of the projection that does the same for one token
override groups: u32 = 1;

struct Params {
  cols: u32,
  pieces: u32,
  eps: f32,
  offset: f32,
  branch: u32,  // 0: r = x; 1: x + branch; 2: x + norm(branch)
  store: u32,   // 1: r is stored
  branch_scale: f32,
  scale: f32,   // of what is made of norm(r)
  last: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;  // [column][cols], as branch and r
@group(0) @binding(3) var<storage, read> branch: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> norms: array<vec4<f32>>;  // the weights of the norm of r, then of branch
@group(0) @binding(5) var<storage, read_write> r: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> x_row: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> norm_factors: array<f32>;  // [column]

var<private> x_column: u32;

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  if (id.x >= select(state.position, state.draw, params.last == 1u)) {
    return;
  }
  x_column = id.x;
  residual_norm((id.x + params.last * state.token) * (params.cols / 4u), thread, params.store == 1u);
  put_x_row(id.x, thread);
  let factor = inverseSqrt(group_sum_get(thread, 1u) / f32(params.cols) + params.eps) * params.scale;
  if (thread == 0u) {
    norm_factors[id.x] = factor;
  }
}

// kernel: batch_merge
// x of the attention of every column, which lies in splits (attention_fused.wgsl).
// use: paged_state
// use: splits
// use: merge_partials
// use: x_piece = none | int8
// use: x_row = float | int8

override lanes: u32 = 32;
override groups: u32 = 1;

struct Params {
  cols: u32,  // heads · head_dim
  pieces: u32,
  heads: u32,
  head_dim: u32,
  splits: u32,
  window: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> x_row: array<vec4<u32>>;

var<private> x_column: u32;

fn token_position() -> u32 {
  return state.pages[x_column];
}

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  if (id.x >= state.position) {
    return;
  }
  x_column = id.x;
  let merge = Merge(params.heads, params.head_dim, params.splits, params.window, id.x);
  for (var quad = thread; quad < max_pieces * 8u; quad += lanes * groups) {
    var v = vec4<f32>(0.0);
    if (quad * 4u < params.cols) {
      v = merged(merge, quad);
    }
    x_put(quad, v);
  }
  put_x_row(id.x, thread);
}

// kernel: batch_quantize
// x of values that are there as floats. A thread takes a piece at a time, so that no row is too long.
// use: state
// use: x_piece = int8

override threads: u32 = 64;

struct Params {
  cols: u32,
  pieces: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> values: array<vec4<f32>>;  // [column][cols]
@group(0) @binding(3) var<storage, read_write> x_row: array<vec4<u32>>;

fn quad_at(first: u32, quad: u32) -> vec4<f32> {
  let quads = params.cols / 4u;
  return select(vec4<f32>(0.0), values[first + min(quad, quads - 1u)], quad < quads);
}
@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let column = id.y;
  let p = id.x * threads + thread;
  if (column >= state.position || p >= params.pieces) {
    return;
  }
  let first = column * (params.cols / 4u);
  let q = p * 8u;
  put_x_piece(column, p, quad_at(first, q), quad_at(first, q + 1u), quad_at(first, q + 2u), quad_at(first, q + 3u),
              quad_at(first, q + 4u), quad_at(first, q + 5u), quad_at(first, q + 6u), quad_at(first, q + 7u));
}

// kernel: project_batch
// y = W · x (· factor) (+ bias) for every column. A team of `lanes` neighbouring threads takes kRows rows by kColumns
// columns: what is read of a row serves all of them. Workgroups that share rows are neighbours in the grid.
// use: index
// use: bytes
// use: state
// use: mxfp4
// use: weights = *
// use: x_batch = float | int8
// use: int_dots = *
// use: team_sum = plain | subgroup
// use: sort_key
// use: batch_out = plain | best
// use: soft_cap = tanh
// use: dense_rows
// use: team_spread = plain | subgroup
// use: column_sums = *

override lanes: u32 = 4;   // threads of a team, a power of two
override groups: u32 = 1;  // teams of a workgroup
override turns: u32 = 1;   // ⌈pieces / lanes⌉

struct Params {
  cols: u32,
  pieces: u32,
  stride: u32,
  rows: u32,
  first_row: u32,
  bias: u32,
  softcap: f32,
  second_row: u32,     // rows from here on lie elsewhere (lib/project.wgsl)
  second_at: u32,
  second_stride: u32,
  scaled: u32,         // 1: by `norm_factors`
  chunks: u32,         // of kColumns columns, in the grid
  width: u32,          // of a column of y
  first_pair: u32,     // where in a column of pairs the first lands
  last: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> norm_factors: array<f32>;  // [column]
@group(0) @binding(4) var<storage, read> w2: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(6) var<storage, read> bias: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<u32>;

struct FourRows {
  a: Raw,
  b: Raw,
  c: Raw,
  d: Raw,
}
struct Place {
  thread: u32,
  row: u32,        // the team's first
  column: u32,     // the workgroup's first
  columns: u32,    // that there are
  workgroup: u32,  // among those of its columns
}

fn four_rows(row: u32, piece: u32) -> FourRows {
  return FourRows(load_place(row, piece), load_place(row + 1u, piece), load_place(row + 2u, piece),
                  load_place(row + 3u, piece));
}
fn add_rows(sum: vec4<f32>, rows: FourRows, piece: u32, x: X) -> vec4<f32> {
  return vec4<f32>(x_add(sum.x, rows.a, piece, x), x_add(sum.y, rows.b, piece, x), x_add(sum.z, rows.c, piece, x),
                   x_add(sum.w, rows.d, piece, x));
}

// Of vector v of the tile, component c: the sum of a row and a column.
fn factor_of(column: u32) -> f32 {
  if (params.scaled == 1u) {
    return norm_factors[column];
  }
  return 1.0;
}
fn emit_one(at: Place, v: u32, c: u32, sum: f32) {
  let column = at.column + v % kColumns;
  let row = at.row + v / kColumns * 4u + c;
  if (column < at.columns && row < params.rows) {
    let to = params.first_row + row;
    put_result(at, column, row, to, finished(sum * factor_of(column), to));
  }
}
fn emit_pair(at: Place, v: u32, c: u32, sums: vec2<f32>) {
  if (glu == 0u) {
    emit_one(at, v, c, sums.x);
    emit_one(at, v, c + 1u, sums.y);
    return;
  }
  let column = at.column + v % kColumns;
  let row = at.row + v / kColumns * 4u + c;
  if (column < at.columns && row < params.rows) {
    let pair = sums * factor_of(column);
    put_result(at, column, row, params.first_row + row / 2u, activation(pair.x) * pair.y);
  }
}
fn emit_four(at: Place, v: u32, sums: vec4<f32>) {
  emit_pair(at, v, 0u, sums.xy);
  emit_pair(at, v, 2u, sums.zw);
}

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup_index(id, count);
  let column = index % params.chunks * kColumns;
  let workgroup = index / params.chunks;
  let columns = select(state.position, state.draw, params.last == 1u);
  if (column >= columns || workgroup * groups * kRows >= params.rows) {
    return;
  }
  let row = (workgroup * groups + thread / lanes) * kRows;
  let at = Place(thread, row, column, columns, workgroup);
  let lane = thread % lanes;
  var sums = Sums();
  var next = load_rows(row, min(lane, params.pieces - 1u));
  for (var turn = 0u; turn < turns; turn++) {
    let piece = turn * lanes + lane;
    let rows = next;
    if (turn + 1u < turns) {
      next = load_rows(row, min(piece + lanes, params.pieces - 1u));
    }
    if (piece < params.pieces) {
      add_columns(&sums, rows, piece, column, columns - 1u);
    }
  }
  spread_sums(at, &sums);
  flush_results_of(at);
}

// snippet: batch_out = plain
// y: array<u32>, the bits of f32.
fn put_result(at: Place, column: u32, row: u32, to: u32, value: f32) {
  y[column * params.width + to] = bitcast<u32>(value);
}
fn flush_results_of(at: Place) {}

// snippet: batch_out = best
// Of logits only what the greedy choice needs: the best (key, id) of a workgroup's rows, as pair `first_pair` + the
// workgroup's number of a column of `width` of them (argmax.wgsl).
const kMergers: u32 = 16u;  // threads that merge the rows of a column
var<workgroup> keys: array<u32, groups * kRows * kColumns>;  // [column][row]; 0 is below every logit
var<workgroup> merged_best: array<vec2<u32>, kMergers * kColumns>;

fn put_result(at: Place, column: u32, row: u32, to: u32, value: f32) {
  keys[(column - at.column) * groups * kRows + row % (groups * kRows)] = sort_key(bitcast<u32>(value));
}
fn flush_results_of(at: Place) {
  let count = groups * kRows;
  let first = at.workgroup * count;
  workgroupBarrier();
  for (var i = at.thread; i < kMergers * kColumns; i += lanes * groups) {
    var best = vec2<u32>(0u, 0xffffffffu);
    for (var row = i % kMergers; row < min(count, params.rows - first); row += kMergers) {
      let pair = vec2<u32>(keys[i / kMergers * count + row], params.first_row + first + row);
      best = select(best, pair, better(pair, best));
    }
    merged_best[i] = best;
  }
  workgroupBarrier();
  if (at.thread < kColumns && at.column + at.thread < at.columns) {
    var best = merged_best[at.thread * kMergers];
    for (var i = 1u; i < kMergers; i++) {
      let pair = merged_best[at.thread * kMergers + i];
      best = select(best, pair, better(pair, best));
    }
    let pair = (at.column + at.thread) * params.width + params.first_pair + at.workgroup;
    y[2u * pair] = best.x;
    y[2u * pair + 1u] = best.y;
  }
}
