// Gated activations. kind 0: gelu_tanh(g) · u   1: silu(g) · u   2: g · sigmoid(alpha · g) · (u + 1), g and u clamped by
// `limit`.

// The cut keeps exp from overflowing, which WGSL leaves undefined; sigmoid(-80) is 2e-35.
fn sigmoid(v: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-v, 80.0)));
}

fn activate(kind: u32, g: f32, u: f32, limit: f32, alpha: f32) -> f32 {
  if (kind == 0u) {
    // 0.5 · (1 + tanh(t)) is sigmoid(2t), without the cancellation.
    return g * sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u;
  }
  if (kind == 1u) {
    return g * sigmoid(g) * u;
  }
  let cut = min(g, limit);
  return cut * sigmoid(alpha * cut) * (clamp(u, -limit, limit) + 1.0);
}
