#include "convert/repack_mxfp4.h"

namespace doppler {

bool repack_mxfp4_hf(const std::byte* blocks, const std::byte* scales, std::byte* out, size_t n_blocks) {
  constexpr std::byte kLow{0x0f}, kHigh{0xf0};
  constexpr std::byte kLargestScale{252};  // 6 · 2^(252 − 127) is the largest product below infinity
  bool finite = true;
  for (size_t b = 0; b < n_blocks; ++b, blocks += 16, out += 17) {
    out[0] = scales[b];
    finite &= scales[b] <= kLargestScale;
    for (size_t i = 0; i < 8; ++i) {  // bytes i and 8 + i hold elements 2i, 2i + 1 and 16 + 2i, 17 + 2i
      const std::byte first = blocks[i], second = blocks[8 + i];
      out[1 + 2 * i] = (first & kLow) | (second & kLow) << 4;
      out[2 + 2 * i] = first >> 4 | (second & kHigh);
    }
  }
  return finite;
}

}  // namespace doppler
