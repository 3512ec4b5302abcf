// Any bytes as a JSON schema: an error that says so, or a grammar that yields text. With an even first byte the rest is
// a schema; with an odd one it is the pattern of a string.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string schema(rest);
  if (data[0] % 2 == 1) {
    if (find_invalid_utf8(rest) != rest.size()) return 0;
    schema = Json({{"type", "string"}, {"pattern", rest}}).dump();
  }
  try {
    fuzz::walk(*grammar_from_json_schema(schema, "fuzz", fuzz::trie()), size);
  } catch (const Failure&) {
  }
  return 0;
}
