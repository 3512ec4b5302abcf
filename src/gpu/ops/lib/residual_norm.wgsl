// r = x + s · branch, or x + s · norm(branch), and norm(r) without its factor: the beginning of a projection.

// snippet: residual_norm
// For kernels with the bindings x, branch, norms and r (all f32, by four), the params cols, eps, offset, branch and
// branch_scale, and lanes · groups threads. Takes the row whose first quad is `first` to x_put(), and its sum of squares
// to group_sum 1: the norm's factor is the same for all columns, so it can wait while the product is made without it.
const kMaxTurns = 8u;
override turns: u32 = 1;  // quads per thread: ⌈8 · pieces / threads⌉, at most kMaxTurns

// What a thread keeps of its quads between the passes.
var<private> kept_quads: array<vec4<f32>, kMaxTurns>;
var<private> kept_branch: array<vec4<f32>, kMaxTurns>;
var<private> kept_norms: array<vec4<f32>, kMaxTurns>;
var<private> kept_branch_norms: array<vec4<f32>, kMaxTurns>;

fn residual_norm(first: u32, thread: u32, store: bool) {
  let quads = params.cols / 4u;
  // Everything is read before anything waits.
  for (var t = 0u; t < turns; t++) {
    let q = thread + t * lanes * groups;
    var v = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
    var n = vec4<f32>(0.0);
    var bn = vec4<f32>(0.0);
    if (q < quads) {
      v = x[first + q];
      n = norms[q];
      if (params.branch != 0u) {
        b = branch[first + q];
      }
      if (params.branch == 2u) {
        bn = norms[quads + q];
      }
    }
    kept_quads[t] = v;
    kept_norms[t] = n;
    kept_branch[t] = b;
    kept_branch_norms[t] = bn;
  }
  if (params.branch == 2u) {
    var own = 0.0;
    for (var t = 0u; t < turns; t++) {
      own += dot(kept_branch[t], kept_branch[t]);
    }
    group_sum_put(own, thread, 0u);
    workgroupBarrier();
    let factor = inverseSqrt(group_sum_get(thread, 0u) / f32(params.cols) + params.eps);
    for (var t = 0u; t < turns; t++) {
      kept_branch[t] *= factor * (vec4<f32>(params.offset) + kept_branch_norms[t]);
    }
  }
  var own = 0.0;
  for (var t = 0u; t < turns; t++) {
    kept_quads[t] = fma(vec4<f32>(params.branch_scale), kept_branch[t], kept_quads[t]);
    own += dot(kept_quads[t], kept_quads[t]);
    let q = thread + t * lanes * groups;
    if (store && q < quads) {
      r[first + q] = kept_quads[t];
    }
  }
  group_sum_put(own, thread, 1u);
  for (var t = 0u; t < turns; t++) {
    let q = thread + t * lanes * groups;
    if (q < max_pieces * 8u) {
      // Past the end of x the quads are zero, so is their norm's product.
      x_put(q, kept_quads[t] * (vec4<f32>(params.offset) + kept_norms[t]));
    }
  }
}
