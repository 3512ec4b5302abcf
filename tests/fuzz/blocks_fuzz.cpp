// Any bytes as a row of blocks of any type: decoded within its bytes, and to `cols` numbers. The first byte is the
// type, the second the columns; the numbers may be infinite or none, as a file's may.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "format/decode.h"
#include "format/dtype.h"
#include "format/quantised_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  if (size < 3) return 0;
  const auto type = static_cast<DType>(data[0] % kDTypeCount);
  const size_t most =
      (size - 2) / static_cast<size_t>(info(type).block_bytes) * static_cast<size_t>(info(type).block_weights);
  if (most == 0) return 0;
  const size_t cols = 1 + (data[1] * 7) % most;
  // Exactly as long as they must be, so that a byte beside them is found.
  const size_t bytes = row_bytes(type, cols);
  const auto row = std::make_unique<std::byte[]>(bytes);
  std::memcpy(row.get(), data + 2, bytes);
  const auto values = std::make_unique<float[]>(cols);
  decode_row(type, row.get(), values.get(), cols);
  const auto again = std::make_unique<float[]>(cols);
  decode_row(type, row.get(), again.get(), cols);
  if (std::memcmp(values.get(), again.get(), cols * sizeof(float)) != 0)
    std::abort();  // something was read that nobody wrote
  all_finite(values.get(), cols);
  const size_t blocks = (size - 2) / 17;
  const auto codes = std::make_unique<std::byte[]>(16 * blocks), scales = std::make_unique<std::byte[]>(blocks),
             out = std::make_unique<std::byte[]>(17 * blocks);
  std::memcpy(codes.get(), data + 2, 16 * blocks);
  std::memcpy(scales.get(), data + 2 + 16 * blocks, blocks);
  if (repack_mxfp4_hf(codes.get(), scales.get(), out.get(), blocks)) {
    std::vector<float> packed(32 * blocks);
    decode_row(DType::kMXFP4, out.get(), packed.data(), packed.size());
    if (!all_finite(packed.data(), packed.size())) std::abort();  // what it lets through is finite
  }
  // 448 is the largest number of e4m3, and e8m0 has no sign; NaN compares with nothing.
  if (decode_e4m3(data[2]) > 448 || decode_e4m3(data[2]) < -448 || decode_e8m0(data[2]) < 0) std::abort();
  return 0;
}
