// ggml's own bytes, decoded values and errors (tests/data/quants), and the measure they are compared by.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "format/decode.h"
#include "format/dtype.h"
#include "support/read_safetensors.h"

namespace doppler::test {

inline const std::vector<std::string> kQuantKinds = {"gauss", "heavy", "positive", "zeros_and_spikes"};
inline constexpr size_t kGoldenRows = 32, kGoldenCols = 1024;

inline const TestTensors& golden_quants() {
  static const TestTensors tensors = read_safetensors(DOPPLER_TEST_DATA "/quants/ggml.safetensors");
  return tensors;
}

inline double golden_error(const std::string& kind, const std::string& type) {
  return std::strtod(golden_quants().metadata.at(kind + "." + type + ".rel_rms_error").c_str(), nullptr);
}

inline std::vector<float> decode_matrix(DType type, const std::byte* bytes, size_t rows, size_t cols) {
  std::vector<float> out(rows * cols);
  for (size_t r = 0; r < rows; ++r) decode_row(type, bytes + r * row_bytes(type, cols), &out[r * cols], cols);
  return out;
}

// sqrt(sum (source - decoded)² / sum source²)
inline double relative_rms(const std::vector<float>& source, const std::vector<float>& decoded) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    const double difference = static_cast<double>(source[i]) - decoded[i];
    error += difference * difference;
    norm += static_cast<double>(source[i]) * source[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

}  // namespace doppler::test
