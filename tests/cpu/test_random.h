// Reproducible random numbers and weights for the CPU tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "convert/quantize.h"
#include "format/decode.h"
#include "format/tensor.h"

namespace doppler::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }  // [0, 1)
  float bell() {                                                           // about normal, sigma 1
    float sum = 0;
    for (int i = 0; i < 6; ++i) sum += uniform();
    return (sum - 3) * 1.414f;
  }
  std::vector<float> bells(size_t n, float sigma = 1) {
    std::vector<float> v(n);
    for (float& x : v) x = bell() * sigma;
    return v;
  }

 private:
  uint64_t state_;
};

// Where the halves lie in a block of a type that nothing here quantises to.
inline std::vector<size_t> halves_of(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kIQ3_S:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS: return {0};
    default: return {};
  }
}

// About how large their weights are with halves of one: of scales and of codes or levels that are all as likely.
inline float size_of(DType type) {
  switch (type) {
    case DType::kQ4_1: return 9;
    case DType::kQ5_1: return 18;
    case DType::kQ5_K: return 36 * 18;
    case DType::kQ2_K: return 9 * 2;
    case DType::kQ3_K: return 18 * 2;
    case DType::kIQ4_NL: return 60;
    case DType::kIQ4_XS: return 18 * 60;
    default: return 100;
  }
}

// Minima over scales, so that weights lie about zero, as a model's do.
inline float centre_of(DType type) {
  switch (type) {
    case DType::kQ4_1: return -7.5f;
    case DType::kQ5_1: return -15.5f;
    case DType::kQ5_K: return 15.5f;
    default: return 1.5f;
  }
}

// A tensor that owns its bytes. Types that nothing here quantises to get random valid blocks, with weights of about
// sigma and scales of either sign.
struct OwnedTensor {
  Tensor tensor;
  std::vector<std::byte> bytes;

  OwnedTensor(std::string name, DType type, std::vector<int64_t> shape, Random& random, float sigma) {
    tensor.name = std::move(name);
    tensor.dtype = type;
    tensor.shape = std::move(shape);
    const size_t rows = static_cast<size_t>(tensor.rows()), cols = static_cast<size_t>(tensor.cols());
    bytes.resize(rows * tensor.stride());
    for (size_t r = 0; r < rows; ++r) {
      std::byte* row = bytes.data() + r * tensor.stride();
      if (can_quantize(type)) {
        const std::vector<float> values = random.bells(cols, sigma);
        quantize_row(type, values.data(), row, cols);
      } else {
        for (size_t i = 0; i < tensor.stride(); ++i) row[i] = static_cast<std::byte>(random.next());
        if (type == DType::kMXFP4) {
          for (size_t i = 0; i < tensor.stride(); i += 17) row[i] = static_cast<std::byte>(121 + random.below(3));
        }
        for (size_t b = 0; b < tensor.stride(); b += static_cast<size_t>(info(type).block_bytes)) {
          // Scales and minima of the upper half of their range: what rounds activations is bounded for even weights.
          for (size_t i = 4; type == DType::kQ5_K && i < 12; ++i) row[b + i] |= std::byte{0xa0};
          const float size = sigma / size_of(type) * (0.75f + random.uniform() / 2);
          float value = random.below(2) ? size : -size;  // of d, then of dmin
          for (const size_t half : halves_of(type)) {
            const uint16_t bits = f32_to_f16(value);
            std::memcpy(row + b + half, &bits, 2);
            value *= centre_of(type);
          }
        }
      }
    }
    tensor.bytes = bytes;
  }
  OwnedTensor(OwnedTensor&&) = default;

  std::vector<float> decoded() const {
    const size_t rows = static_cast<size_t>(tensor.rows()), cols = static_cast<size_t>(tensor.cols());
    std::vector<float> out(rows * cols);
    for (size_t r = 0; r < rows; ++r) {
      decode_row(tensor.dtype, tensor.row(static_cast<int64_t>(r)), out.data() + r * cols, cols);
    }
    return out;
  }
};

}  // namespace doppler::testing
