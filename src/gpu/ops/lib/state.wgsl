// What changes with every token, so that one recording serves all of them (src/gpu/run/decode_state.h). The kernel that
// picks a token advances it.
struct State {
  position: u32,  // tokens already in the context: the current token's position
  token: u32,     // the current token
  draw: u32,      // number of the random draw
  produced: u32,  // tokens written to out_tokens
}
