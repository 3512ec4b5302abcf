// x f32 [tokens, params.cols], bound as vec4<f32>.
override vectors: bool = true;  // x may be read four at a time: its row length is a multiple of 4

// Four elements of a token's row from element `at`, zero past the end of the row.
fn x_quad(token: u32, at: u32) -> vec4<f32> {
  if (vectors) {
    if (at < params.cols) {
      return x[(token * params.cols + at) / 4u];
    }
    return vec4<f32>(0.0);
  }
  var v = vec4<f32>(0.0);
  for (var k = 0u; k < 4u; k++) {
    if (at + k < params.cols) {
      let i = token * params.cols + at + k;
      v[k] = x[i / 4u][i % 4u];
    }
  }
  return v;
}
