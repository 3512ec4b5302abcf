// Results of an expert's gate and up as they are, expert by expert. y: array<u32>, the bits of f32.
fn put_result(at: u32, value: f32) {
  y[expert_slot * (params.rows / 2u) + at] = bitcast<u32>(value);
}
fn finish_results(first: u32, thread: u32) {}
