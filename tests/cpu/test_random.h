// Reproducible random numbers and weights for the CPU tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

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

// A tensor that owns its bytes. Types that nothing here quantises to get random valid blocks, with scales of about 0.01
// and either sign.
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
        for (const size_t half : halves_of(type)) {
          for (size_t b = 0; b < tensor.stride(); b += static_cast<size_t>(info(type).block_bytes)) {
            const auto value = static_cast<uint16_t>(0x2000 + random.below(0x400) + random.below(2) * 0x8000);
            std::memcpy(row + b + half, &value, 2);
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
