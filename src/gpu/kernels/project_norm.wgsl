// y = W · norm(r) for one token, where r = x + branch, or x + norm(branch): the end of one block of a layer, the residual
// addition and the beginning of the next block in one dispatch. Every workgroup makes the norm anew (a few KiB from the
// cache); the first one also stores r for the next block. See lib/project.wgsl.
// use: index
// use: bytes
// use: weights = f32 | f16 | bf16 | q8_0 | q4_k | q6_k
// use: x = float | int8
// use: int_dots = none | q8_0 | q4_k | q6_k
// use: project

struct Params {
  cols: u32,
  pieces: u32,
  stride: u32,
  rows: u32,
  first_row: u32,
  bias: u32,
  softcap: f32,
  eps: f32,
  offset: f32,
  branch: u32,  // 0: r = x; 1: x + branch; 2: x + norm(branch)
  store: u32,   // 1: this dispatch stores r
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // cols is a multiple of 4
@group(0) @binding(2) var<storage, read> branch: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norms: array<vec4<f32>>;  // the weights of the norm of r, then of branch
@group(0) @binding(4) var<storage, read> w: array<u32>;
@group(0) @binding(5) var<storage, read> w4: array<vec4<u32>>;  // the same buffer
@group(0) @binding(6) var<storage, read> bias: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> r: array<vec4<f32>>;

var<workgroup> squares: array<f32, lanes * groups>;
var<workgroup> squares_parts: array<f32, 16>;

// Σ over the workgroup, the same in every thread. Sixteen threads add up strides, then everyone adds sixteen.
fn sum_squares(value: f32, thread: u32) -> f32 {
  squares[thread] = value;
  workgroupBarrier();
  if (thread < 16u) {
    var sum = 0.0;
    for (var i = thread; i < lanes * groups; i += 16u) {
      sum += squares[i];
    }
    squares_parts[thread] = sum;
  }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < 16u; i++) {
    total += squares_parts[i];
  }
  return total;
}

@compute @workgroup_size(lanes * groups)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {
  let index = workgroup_index(id, count);
  let first = index * groups * rows;
  let quads = params.cols / 4u;
  prefetch(first, thread);

  var factor = 1.0;
  if (params.branch == 2u) {
    var own = 0.0;
    for (var q = thread; q < quads; q += lanes * groups) {
      own += dot(branch[q], branch[q]);
    }
    factor = inverseSqrt(sum_squares(own, thread) / f32(params.cols) + params.eps);
    workgroupBarrier();
  }
  var own = 0.0;
  for (var q = thread; q < params.pieces * 8u; q += lanes * groups) {
    var v = vec4<f32>(0.0);
    if (q < quads) {
      v = x[q];
      if (params.branch == 1u) {
        v += branch[q];
      } else if (params.branch == 2u) {
        v += branch[q] * factor * (vec4<f32>(params.offset) + norms[quads + q]);
      }
      own += dot(v, v);
      if (params.store == 1u && index == 0u) {
        r[q] = v;
      }
    }
    x_put(q, v);
  }
  let inverse = inverseSqrt(sum_squares(own, thread) / f32(params.cols) + params.eps);
  for (var q = thread; q < quads; q += lanes * groups) {
    let at = (q & 7u) * most_pieces + (q >> 3u);  // what this thread put there
    x_quads[at] = x_quads[at] * inverse * (vec4<f32>(params.offset) + norms[q]);
  }
  finish_x(thread);
  project(first, thread);
}
