#include "model/cost.h"

#include <algorithm>

namespace doppler {
namespace {

constexpr double kKvElementBytes = 2;

// Without what fills up the last block of a row: nobody has to read that.
double bytes_needed(const Tensor& tensor) {
  const DTypeInfo& type = info(tensor.dtype);
  return static_cast<double>(tensor.rows()) * static_cast<double>(tensor.cols()) *
         static_cast<double>(type.block_bytes) / static_cast<double>(type.block_weights);
}

}  // namespace

Cost decode_cost(const Plan& plan, const Weights& weights, int position) {
  Cost cost;
  for (const Step& step : plan.steps) {
    const double width = plan.values[static_cast<size_t>(step.output)].width;
    for (const WeightUse& use : step.weights) {
      const Tensor& tensor = weights.at(use.slot);
      double share = 1;
      if (std::holds_alternative<Embed>(step.op)) share = 1 / static_cast<double>(tensor.rows());
      if (const auto* experts = std::get_if<ExpertMatMul>(&step.op)) {
        share = experts->k / static_cast<double>(tensor.shape[0]);
      }
      cost.weight_bytes += share * bytes_needed(tensor);
      const bool matrix = std::holds_alternative<MatMul>(step.op) || std::holds_alternative<ExpertMatMul>(step.op);
      if (matrix && use.shape.size() > 1) cost.operations += 2 * width * static_cast<double>(use.shape.back());
    }
    if (const auto* attention = std::get_if<Attention>(&step.op)) {
      const int keys = attention->window > 0 ? std::min(attention->window, position + 1) : position + 1;
      const double elements = 2.0 * keys * attention->head_dim;  // keys and values
      cost.kv_bytes += elements * attention->kv_heads * kKvElementBytes;
      cost.operations += 2 * elements * attention->heads;
    }
    if (const auto* delta = std::get_if<DeltaNet>(&step.op)) {
      const double elements = 1.0 * delta->value_heads * delta->key_dim * delta->value_dim;
      cost.kv_bytes += 2 * elements * sizeof(float);  // read and written
      cost.operations += 7 * elements;
    }
  }
  return cost;
}

size_t kv_cache_bytes(const ModelConfig& config, int context) {
  size_t elements = 0;
  for (int i = 0; i < config.layer_count(); ++i) {
    const LayerConfig& layer = config.layer(i);
    if (layer.mixer != Mixer::kAttention || layer.keys_of >= 0) continue;
    const int positions = layer.window > 0 && config.causal ? std::min(layer.window, context) : context;
    elements += static_cast<size_t>(positions) * static_cast<size_t>(config.kv_width_of(i));
  }
  return elements * 2 * static_cast<size_t>(kKvElementBytes);
}

}  // namespace doppler
