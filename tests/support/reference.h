// The reference checkpoints: what an independent implementation computes on them, and how near we must come.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "format/safetensors.h"
#include "model/executor.h"

namespace doppler::testing {

// Reference data too large for the repository (the shipped model's original weights) lies beside the project, or where
// DOPPLER_REFERENCE says. Empty if it is not there.
inline std::filesystem::path reference_folder(const std::string& name) {
  const char* told = std::getenv("DOPPLER_REFERENCE");
  const std::filesystem::path root = told ? told : DOPPLER_SOURCE_DIR "/../shared/reference";
  return std::filesystem::exists(root / name) ? root / name : std::filesystem::path();
}

// ‖a − b‖ / ‖b‖
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / size);
}

struct Reference {
  explicit Reference(const std::filesystem::path& folder)
      : stages(folder / "reference.safetensors"),
        json(parse_json(read_text_file(folder / "reference.json"), (folder / "reference.json").string())) {}

  std::vector<int32_t> ids(const char* key) const { return json[key].get<std::vector<int32_t>>(); }
  std::vector<double> margins() const { return json["greedy_margin"].get<std::vector<double>>(); }
  std::span<const float> stage(const std::string& name) const {
    const RawTensor* tensor = stages.find(name);
    if (!tensor) return {};
    return {reinterpret_cast<const float*>(tensor->bytes.data()), tensor->bytes.size() / sizeof(float)};
  }

  SafetensorsFile stages;
  Json json;
};

// The reference calls the norm before the feed-forward by its Hugging Face name, which is post_attn_norm where a layer
// has only two norms.
inline std::string reference_name(const Step& step, const Plan& plan) {
  const size_t dot = step.name.find('.');
  if (dot == std::string::npos || step.name.substr(dot + 1) != "pre_ffn_norm") return step.name;
  const std::string other = step.name.substr(0, dot) + ".post_attn_norm";
  return plan.find(other) ? step.name : other;
}

// Runs the reference's prompt and returns each stage's relative error.
inline std::map<std::string, double> stage_errors(Executor& executor, const Plan& plan, const Reference& reference) {
  std::map<std::string, double> errors;
  executor.set_tap([&](const Step& step, std::span<const float> data, int, int) {
    const std::string name = reference_name(step, plan);
    const std::span<const float> expected = reference.stage(name);
    if (expected.empty()) return;
    EXPECT_EQ(data.size(), expected.size()) << name;
    errors[name] = relative_error(data, expected);
  });
  executor.forward(reference.ids("prompt_ids"), Logits::kAll);
  executor.set_tap(nullptr);
  return errors;
}

}  // namespace doppler::testing
