// cap · tanh(x / cap). By exp, because tanh itself may overflow on some devices.
fn soft_cap(x: Heads, cap: f32) -> Heads {
  let e = exp(2.0 * clamp(x / cap, Heads(-20.0), Heads(20.0)));
  return cap * (1.0 - 2.0 / (e + 1.0));
}
