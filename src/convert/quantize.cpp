#include "convert/quantize.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "convert/quantize_kernels.h"

namespace doppler {
namespace {

quant::BlockQuantizer find_quantizer(DType type) {
  const quant::Kernels& best = quant::kernels().front();
  switch (type) {
    case DType::kQ8_0: return best.q8_0;
    case DType::kQ5_0: return best.q5_0;
    case DType::kQ4_0: return best.q4_0;
    case DType::kQ4_K: return best.q4_k;
    case DType::kQ6_K: return best.q6_k;
    default: return nullptr;
  }
}

template <uint16_t (*Convert)(float)>
void convert_16(const float* row, std::byte* out, size_t cols) {
  for (size_t i = 0; i < cols; ++i) {
    const uint16_t value = Convert(row[i]);
    std::memcpy(out + 2 * i, &value, sizeof value);
  }
}

}  // namespace

bool can_quantize(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16 || find_quantizer(type) != nullptr;
}

void quantize_row(DType type, const float* row, std::byte* out, size_t cols) {
  switch (type) {
    case DType::kF32: std::memcpy(out, row, cols * sizeof(float)); return;
    case DType::kF16: convert_16<f32_to_f16>(row, out, cols); return;
    case DType::kBF16: convert_16<f32_to_bf16>(row, out, cols); return;
    default: break;
  }
  const DTypeInfo& t = info(type);
  const quant::BlockQuantizer quantize = find_quantizer(type);
  if (quantize == nullptr) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this number format can be read but not written",
          .where = std::string(t.name),
          .expected = "F32, F16, BF16, Q8_0, Q5_0, Q4_0, Q4_K or Q6_K",
          .got = std::string(t.name)});
  }
  const size_t weights = static_cast<size_t>(t.block_weights);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(out);
  for (size_t begin = 0; begin < cols; begin += weights) {
    const size_t n = cols - begin < weights ? cols - begin : weights;
    quantize(row + begin, static_cast<int>(n), bytes);
    bytes += t.block_bytes;
  }
}

void quantize_rows(DType type, const float* src, std::byte* dst, size_t rows, size_t cols, ThreadPool& pool) {
  const size_t bytes = row_bytes(type, cols);
  pool.run([&](int index, int count) {
    const Range range = split_range(static_cast<long>(rows), index, count);
    for (long r = range.begin; r < range.end; ++r) {
      const size_t row = static_cast<size_t>(r);
      quantize_row(type, src + row * cols, dst + row * bytes, cols);
    }
  });
}

float largest_magnitude(DType type) {
  constexpr float kHalf = 65504.0f;
  switch (type) {
    case DType::kF16: return kHalf;
    case DType::kQ8_0: return kHalf * 127;
    case DType::kQ5_0: return kHalf * 15;
    case DType::kQ4_0: return kHalf * 7;
    case DType::kQ4_K: return kHalf * 63;  // with a minimum of zero it reaches further
    case DType::kQ6_K: return kHalf * 127 * 31;
    case DType::kBF16: return bf16_to_f32(0x7f7f);
    default: return std::numeric_limits<float>::max();
  }
}

}  // namespace doppler
