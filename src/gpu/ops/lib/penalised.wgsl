// The key of logit i after the repetition penalty: tokens already in the text (`seen`, a bit each) have a positive logit
// divided and a negative one multiplied.
fn penalised_key(i: u32) -> u32 {
  var bits = logits[i];
  if (params.penalty != 1.0 && (seen[i / 32u] & (1u << (i % 32u))) != 0u) {
    let logit = bitcast<f32>(bits);
    // NaN stays NaN without a float comparison that a compiler might fold.
    if (sort_key(bits) > 0x80000000u) {
      bits = bitcast<u32>(logit / params.penalty);
    } else if (sort_key(bits) != 0u) {
      bits = bitcast<u32>(logit * params.penalty);
    }
  }
  return sort_key(bits);
}
