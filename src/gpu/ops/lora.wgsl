// What LoRA adapters add to a matrix's product, in two thin products: thin = A x, out += scale · B thin. What a row gets
// does not depend on how many rows there are.

// kernel: lora_down
// thin[row][r] = Σ a[r][i] · x[row][i]. One workgroup for each row and r.
// use: index
// use: reduce = plain | subgroup

override threads: u32 = 64;

struct Params {
  rows: u32,
  rank: u32,
  columns: u32,  // of a row of x
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;            // [rows, columns]
@group(0) @binding(2) var<storage, read> a: array<f32>;            // [rank, columns]
@group(0) @binding(3) var<storage, read_write> thin: array<f32>;  // [rows, rank]

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let out = workgroup_index(id, count);
  if (out >= params.rows * params.rank) {
    return;
  }
  let first_x = out / params.rank * params.columns;
  let first_a = out % params.rank * params.columns;
  var sum = 0.0;
  for (var i = lane; i < params.columns; i += threads) {
    sum += a[first_a + i] * x[first_x + i];
  }
  let total = workgroup_sum(sum, lane);
  if (lane == 0u) {
    thin[out] = total;
  }
}

// kernel: lora_up
// out[row][c] += scale · Σ b[r][c] · thin[row][r]. One thread for each of them.
// use: index

override threads: u32 = 64;

struct Params {
  rows: u32,
  rank: u32,
  columns: u32,  // of a row of out
  scale: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> thin: array<f32>;       // [rows, rank]
@group(0) @binding(2) var<storage, read> b: array<f32>;          // [rank, columns]
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // [rows, columns]

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let i = workgroup_index(id, count) * threads + lane;
  if (i >= params.rows * params.columns) {
    return;
  }
  let first = i / params.columns * params.rank;
  let column = i % params.columns;
  var sum = 0.0;
  for (var r = 0u; r < params.rank; r++) {
    sum += b[r * params.columns + column] * thin[first + r];
  }
  out[i] += params.scale * sum;
}
