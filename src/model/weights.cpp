#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/error.h"
#include "format/decode.h"

namespace doppler {

bool has_kernels(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ6_K: return true;
    default: return false;
  }
}

bool has_cpu_kernels(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ5_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS: return true;
    default: return has_kernels(type);
  }
}

void Weights::add(std::string slot, Tensor tensor) { by_slot_[std::move(slot)] = std::move(tensor); }

const Tensor* Weights::find(const std::string& slot) const {
  const auto it = by_slot_.find(slot);
  return it == by_slot_.end() ? nullptr : &it->second;
}

const Tensor& Weights::at(const std::string& slot) const {
  const Tensor* tensor = find(slot);
  if (!tensor) {
    fail({.code = ErrorCode::kFormat,
          .what = "a weight is missing",
          .where = slot,
          .todo = "The artefact is incomplete; convert it again"});
  }
  return *tensor;
}

bool stays_in_file(const Plan& plan, const std::string& slot) {
  bool mapped = false;
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) {
      if (use.slot != slot) continue;
      const auto* embed = std::get_if<Embed>(&step.op);
      if (!embed || !embed->mapped) return false;
      mapped = true;
    }
  }
  return mapped;
}

float factor_of(const Step& step, const Weights& weights) {
  const float factor = std::get<Scale>(step.op).factor;
  if (step.weights.empty()) return factor;
  const Tensor& tensor = weights.at(step.weights[0].slot);
  std::vector<std::byte> scratch;
  float learned = 1;
  decode_row(tensor.dtype, tensor.rows_at(0, 1, scratch), &learned, 1);
  return factor * learned;
}

std::vector<std::string> weight_faults(const Plan& plan, const Weights& weights) {
  std::vector<std::string> faults;
  std::set<std::string> used;
  const auto check = [&](const WeightUse& use, const std::string& step) {
    if (!used.insert(use.slot).second) return;  // the tied output matrix is used twice
    const Tensor* tensor = weights.find(use.slot);
    if (!tensor) {
      faults.push_back(
          fmt::format("{} is missing: step {} needs it with shape [{}]", use.slot, step, fmt::join(use.shape, ", ")));
    } else if (tensor->shape != use.shape) {
      faults.push_back(fmt::format("{} ({}) has shape [{}], but step {} needs [{}]", use.slot, tensor->name,
                                   fmt::join(tensor->shape, ", "), step, fmt::join(use.shape, ", ")));
    } else if (tensor->byte_size() != static_cast<size_t>(tensor->rows()) * tensor->stride()) {
      faults.push_back(fmt::format("{} ({}) has {} bytes, but {} rows of {} in {} take {}", use.slot, tensor->name,
                                   tensor->byte_size(), tensor->rows(), tensor->cols(), name_of(tensor->dtype),
                                   static_cast<size_t>(tensor->rows()) * tensor->stride()));
    }
  };
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) check(use, step.name);
  }
  for (const WeightUse& use : plan.dense) check(use, use.slot);
  for (const auto& [slot, tensor] : weights.all()) {
    if (!used.count(slot)) faults.push_back(fmt::format("{} ({}) is there, but no step uses it", slot, tensor.name));
  }
  return faults;
}

}  // namespace doppler
