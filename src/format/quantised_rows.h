// Matrices as the programs of others quantise them, several tensors each, decoded row by row to f32.
//
// The layouts are those of the published checkpoints; docs/formats.md tells them with their sources' names. A value is
// computed in f32 in one order, the one written there, so that two programs that follow it agree bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/safetensors.h"

namespace doppler {

// Rows of a matrix [..., rows, cols] that must be computed; counted over all dimensions but the last.
class RowDecoder {
 public:
  virtual ~RowDecoder() = default;
  virtual void decode(int64_t row, float* out) const = 0;  // out[cols]; from any thread
};

// What config.json says of all matrices and no tensor tells. Matrices may differ, so these are candidates: what fits a
// tensor's shape is taken, and two that fit are refused.
struct QuantisedLayout {
  std::set<int64_t> group_sizes = {};                 // columns that share a scale; -1: all
  std::set<std::pair<int64_t, int64_t>> blocks = {};  // rows and columns that share a scale
  bool zeros_less_one = true;                         // GPTQ's first format keeps zero points less one
  bool symmetric = false;                             // every zero point is half the range of codes
};

// The matrix, or in `fault` why it is none: then `rows` is null.
struct QuantisedMatrix {
  std::vector<int64_t> shape = {};
  std::shared_ptr<const RowDecoder> rows = nullptr;
  std::string kind = {};  // for people: "FP8", "NVFP4"
  std::string fault = {};
};

// One code a weight, F8_E4M3, F8_E5M2 or I8, times a scale: one for all, for each row, for each group of columns, for
// each block. `zeros` (I8, may be null) lie as the scales do. `last_factor` is multiplied last.
QuantisedMatrix scaled_codes(const RawTensor& codes, const RawTensor& scales, const RawTensor* zeros,
                             const QuantisedLayout& layout, float last_factor = 1);

// Two e2m1 codes a byte, the first in the low nibble: NVFP4, where `scales` are F8_E4M3 for 16 columns and `global` is
// multiplied (or `divides`), and MXFP4, where they are e8m0 for 32 and there is no `global`.
QuantisedMatrix paired_codes(const RawTensor& codes, const RawTensor& scales, const RawTensor* global, bool divides);

// compressed-tensors' packed integers: words of 32 bits along a row, codes from the lowest bits up, offset by half
// their range. `shape` is what is packed; `zeros` are packed along the rows; `groups` says which group a column is in.
// Both may be null.
QuantisedMatrix packed_rows(const RawTensor& words, const RawTensor& scales, const RawTensor& shape,
                            const RawTensor* zeros, const RawTensor* groups, const QuantisedLayout& layout);

// GPTQ: qweight [in · bits / 32, out], a stream of bits down each column; AWQ: qweight [in, out / 8] of eight codes of
// four bits in the order 0 2 4 6 1 3 5 7. Which of them it is, the shapes tell. scales [groups, out].
QuantisedMatrix packed_columns(const RawTensor& words, const RawTensor& scales, const RawTensor& zeros,
                               const RawTensor* groups, const QuantisedLayout& layout);

// bitsandbytes' four bits: codes index a table of 16 values, the first in the high nibble, with the largest magnitude
// of each block of the flattened matrix. Those may be quantised once more (`nested`).
struct BlockTable {
  const RawTensor* codes = nullptr;
  const RawTensor* largest = nullptr;  // F32, or U8 where nested
  const RawTensor* table = nullptr;    // F32 [16]
  const RawTensor* state = nullptr;    // U8: JSON
  const RawTensor* nested_largest = nullptr;
  const RawTensor* nested_table = nullptr;  // F32 [256]
};
QuantisedMatrix table_codes(const BlockTable& parts);

// A value of the number formats that have no more than a byte. NaN where the code stands for none.
float decode_e4m3(uint8_t code);
float decode_e5m2(uint8_t code);
float decode_e8m0(uint8_t code);

}  // namespace doppler
