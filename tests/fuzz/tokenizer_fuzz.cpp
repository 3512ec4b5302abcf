// Any bytes as a tokenizer.json, and any bytes as text for it: an error that says so, or a tokenizer that works. The
// part of the input after the first NUL byte is the text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find('\0');
  const std::string_view json = input.substr(0, border);
  const std::string_view rest = border == std::string_view::npos ? "a<s> \xC3\xA9 1" : input.substr(border + 1);
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(json, "fuzz");
    const std::vector<int32_t> ids = tokenizer.encode(rest, true);
    const std::string whole = tokenizer.decode(ids, false);
    if (find_invalid_utf8(whole) != whole.size()) std::abort();
    StreamDecoder stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    if (streamed + stream.finish() != whole) std::abort();
  } catch (const Failure&) {
  }
  return 0;
}
