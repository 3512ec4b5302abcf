// Any bytes as a GGUF file: an error that says so, or tensors and values whose every byte can be read.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  try {
    const GgufFile file({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
    uint64_t sum = 0, bytes = 0;
    for (const Tensor& tensor : file.tensors()) {
      for (const std::byte b : tensor.bytes) sum += std::to_integer<uint64_t>(b);
      bytes += tensor.bytes.size();
      if (tensor.bytes.size() != static_cast<size_t>(tensor.rows()) * tensor.stride()) std::abort();
    }
    if (bytes > size || sum > 255 * bytes) std::abort();  // more than the file holds
    for (const auto& [key, value] : file.metadata()) {
      sum += key.size() + value.string().size() + (value.is_number() && value.number() > 0);
      if (const GgufArray* array = value.array()) {
        for (uint64_t i = 0; i < array->count; ++i) sum += array->number(i) > 0;
        for (const std::string_view text : array->strings) sum += text.empty() ? 0 : text.back() != 0;
      }
    }
    if (sum == ~uint64_t{0}) std::abort();
  } catch (const Failure&) {
  }
  return 0;
}
