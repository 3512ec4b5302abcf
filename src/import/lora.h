// A LoRA adapter as PEFT writes it: a folder with adapter_config.json and adapter_model.safetensors. To be added to the
// matrices of its base model: W + scale · B · A.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/json.h"
#include "format/safetensors.h"

namespace doppler {

class LoraAdapter {
 public:
  // Checks it whole. What would be more than thin products beside matrices (DoRA, biases, modules that were trained
  // whole, transposed matrices) is refused by name.
  explicit LoraAdapter(const std::filesystem::path& folder);

  struct Delta {
    Tensor a, b;  // [rank, cols], [rows, rank]
    float scale = 0;
  };
  // For a tensor of the base model ("model.layers.0.mlp.up_proj.weight"), or null.
  const Delta* find(const std::string& tensor) const;
  const std::map<std::string, Delta>& deltas() const { return deltas_; }  // by the tensor's name

 private:
  Json config_;
  SafetensorsFolder file_;
  std::map<std::string, Delta> deltas_;
};

// values[cols] += row `row` of the delta. `scratch` has room for a row.
void add_lora_row(const LoraAdapter::Delta& delta, int64_t row, float* values, float* scratch);

}  // namespace doppler
