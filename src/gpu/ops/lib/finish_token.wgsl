// By one thread: a token was chosen. Writes it down, marks it as seen and moves on to the next.
fn finish_token(token: u32, advance: u32) {
  let at = state.produced;
  if (at < arrayLength(&out_tokens)) {
    out_tokens[at] = token;
  }
  if (token / 32u < arrayLength(&seen)) {
    seen[token / 32u] |= 1u << (token % 32u);
  }
  state.token = token;
  state.position += advance;
  state.draw += 1u;
  state.produced = at + 1u;
}
