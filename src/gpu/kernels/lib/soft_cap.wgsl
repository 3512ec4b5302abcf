// cap · tanh(x / cap), x unchanged for cap = 0. By exp, because tanh itself may overflow on some devices.
fn soft_cap(x: f32, cap: f32) -> f32 {
  if (cap == 0.0) {
    return x;
  }
  let e = exp(2.0 * clamp(x / cap, -20.0, 20.0));
  return cap * (1.0 - 2.0 / (e + 1.0));
}
