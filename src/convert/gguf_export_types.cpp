// Which type a tensor has in a GGUF file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "convert/gguf_export.h"
#include "convert/quantize.h"

namespace doppler {
namespace {

struct Mix {
  const char* name;
  DType matrix;
  bool varied;  // output, value and down matrices get more bits
};
constexpr Mix kMixes[] = {{"q4_0", DType::kQ4_0, true}, {"q4_k_m", DType::kQ4_K, true}, {"q8_0", DType::kQ8_0, false},
                          {"f16", DType::kF16, false},  {"bf16", DType::kBF16, false},  {"f32", DType::kF32, false}};

// llama.cpp's choice of layers that get more bits.
bool gets_more_bits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool fits(DType type, int64_t cols) { return cols % info(type).block_weights == 0; }

// What llama.cpp falls back to where a row is not a whole number of blocks.
DType fallback(DType type, int64_t cols) {
  if (fits(type, cols)) return type;
  const DType flat = type == DType::kQ4_K ? DType::kQ5_0 : DType::kQ8_0;
  return fits(flat, cols) ? flat : DType::kF16;
}

}  // namespace

DType gguf_export_dtype(const std::string& quant, const std::string& slot, QuantClass kind, bool output, DType own,
                        int64_t cols, int layers) {
  if (kind == QuantClass::kKeep) return DType::kF32;
  if (quant.empty() || (kind == QuantClass::kExpert && own == DType::kMXFP4)) {
    return fits(own, cols) ? own : fits(DType::kQ8_0, cols) ? DType::kQ8_0 : DType::kF16;
  }
  const Mix* mix = nullptr;
  std::vector<std::string> known;
  for (const Mix& candidate : kMixes) {
    if (quant == candidate.name) mix = &candidate;
    known.push_back(candidate.name);
  }
  if (!mix) {
    fail({ErrorCode::kUsage, "an unknown mix of types for GGUF", "--quant",
          fmt::format("one of {}", fmt::join(known, ", ")), quant, ""});
  }
  DType type = mix->matrix;
  if (mix->varied && output) {
    type = fits(DType::kQ6_K, cols) ? DType::kQ6_K : DType::kQ8_0;
  } else if (mix->matrix == DType::kQ4_K && (kind == QuantClass::kValue || kind == QuantClass::kDown) &&
             gets_more_bits(layer_of(slot), layers)) {
    type = DType::kQ6_K;
  }
  return fallback(type, cols);
}

}  // namespace doppler
