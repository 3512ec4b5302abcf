#include "gpu/cases/weight_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "format/decode.h"

namespace doppler::gpu {
namespace {

double half_at(const std::byte* p) {
  uint16_t h = 0;
  std::memcpy(&h, p, 2);
  return static_cast<double>(f16_to_f32(h));
}

void put_half(std::byte* p, double value) {
  const uint16_t h = f32_to_f16(static_cast<float>(value));
  std::memcpy(p, &h, 2);
}

// A block's scale; now and then so small that it is subnormal in f16, as real models have them.
double random_scale(CaseRandom& random) { return random.uniform(0.5, 1) * (random.bits() % 4 == 0 ? 0x1p-17 : 0x1p-9); }

void fill_block(DType dtype, std::byte* block, CaseRandom& random) {
  const DTypeInfo& type = info(dtype);
  for (int i = 0; i < type.block_bytes; ++i) block[i] = static_cast<std::byte>(random.bits());
  switch (dtype) {
    case DType::kF32: {
      const float v = static_cast<float>(random.uniform(-1, 1));
      std::memcpy(block, &v, 4);
      break;
    }
    case DType::kF16: put_half(block, random.uniform(-1, 1) * random_scale(random)); break;
    case DType::kBF16: {
      const uint16_t b = f32_to_bf16(static_cast<float>(random.uniform(-1, 1)));
      std::memcpy(block, &b, 2);
      break;
    }
    case DType::kQ8_0: put_half(block, random_scale(random)); break;
    case DType::kQ4_K:
      put_half(block, random_scale(random));
      put_half(block + 2, random_scale(random));
      break;
    case DType::kQ6_K: put_half(block + 208, random_scale(random)); break;
    case DType::kMXFP4: block[0] = static_cast<std::byte>(116 + random.bits() % 8); break;
    default: break;
  }
}

}  // namespace

RandomMatrix::RandomMatrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  CaseRandom random(seed);
  const size_t stride = row_bytes(dtype, static_cast<size_t>(cols));
  bytes.resize(static_cast<size_t>(rows) * stride);
  const size_t block = static_cast<size_t>(info(dtype).block_bytes);
  for (size_t at = 0; at < bytes.size(); at += block) fill_block(dtype, bytes.data() + at, random);
  tensor.name = fmt::format("{} {}x{}", name_of(dtype), rows, cols);
  tensor.dtype = dtype;
  tensor.shape = {rows, cols};
  tensor.bytes = bytes;
}

std::vector<float> RandomMatrix::row(int64_t r) const {
  std::vector<float> values(static_cast<size_t>(tensor.cols()));
  decode_row(tensor.dtype, tensor.row(r), values.data(), values.size());
  return values;
}

std::vector<double> RandomMatrix::magnitudes(int64_t r) const {
  const std::vector<float> values = row(r);
  std::vector<double> out(values.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const double w = std::abs(static_cast<double>(values[i]));
    const std::byte* block = tensor.row(r) + i / 256 * static_cast<size_t>(info(tensor.dtype).block_bytes);
    const size_t j = i % 256 / 32;
    if (tensor.dtype == DType::kQ4_K) {
      auto byte_at = [&](size_t at) { return static_cast<unsigned>(block[at]); };
      const unsigned min = j < 4 ? byte_at(8 + j) & 63 : byte_at(8 + j) >> 4 | (byte_at(4 + j) >> 6) << 4;
      out[i] = w + 2 * std::abs(half_at(block + 2)) * min;
    } else if (tensor.dtype == DType::kQ6_K) {
      const int scale = static_cast<int8_t>(static_cast<uint8_t>(block[192 + i % 256 / 16]));
      out[i] = w + 64 * std::abs(half_at(block + 208) * scale);
    } else {
      out[i] = w;
    }
  }
  return out;
}

}  // namespace doppler::gpu
