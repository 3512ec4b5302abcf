// Results of a projection as they are. y: array<u32>, the bits of f32.
fn put_result(at: u32, value: f32) {
  y[at] = bitcast<u32>(value);
}
fn finish_results(first: u32, thread: u32) {}
