// Any bytes as a grammar in GBNF: an error that says so, or a grammar that yields text.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  try {
    fuzz::walk(*grammar_from_gbnf({reinterpret_cast<const char*>(data), size}, "fuzz", fuzz::trie()), size);
  } catch (const Failure&) {
  }
  return 0;
}
