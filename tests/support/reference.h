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
        json(parse_json(read_text_file(folder / "reference.json"), (folder / "reference.json").string())) {
    const Json config = parse_json(read_text_file(folder / "config.json"), (folder / "config.json").string());
    for (const auto& [name, tensor] : stages.tensors()) take(name, tensor, config);
  }

  std::vector<int32_t> ids(const char* key) const { return json[key].get<std::vector<int32_t>>(); }
  std::vector<double> margins() const { return json["greedy_margin"].get<std::vector<double>>(); }
  std::span<const float> stage(const std::string& name) const {
    const auto found = by_step.find(name);
    return found == by_step.end() ? std::span<const float>() : found->second;
  }

  SafetensorsFile stages;
  Json json;
  std::map<std::string, std::vector<float>> by_step;  // under our steps' names

 private:
  // What was recorded head by head, [heads · tokens, dim], token by token.
  std::vector<float> by_token(const RawTensor& tensor, const float* data) const {
    const size_t tokens = json["prompt_ids"].size(), dim = static_cast<size_t>(tensor.shape[1]);
    const size_t heads = static_cast<size_t>(tensor.shape[0]) / tokens;
    std::vector<float> out(tokens * heads * dim);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = data[(i / dim % heads * tokens + i / dim / heads) * dim + i % dim];
    }
    return out;
  }

  // Modules that are no step of their own keep the name they have in a checkpoint.
  void take(std::string name, const RawTensor& tensor, const Json& config) {
    const auto* data = reinterpret_cast<const float*>(tensor.bytes.data());
    std::vector<float> values(data, data + tensor.bytes.size() / sizeof(float));
    const std::string layer = name.substr(0, name.find('.') + 1);
    const auto is = [&](const char* module) { return name == layer + module; };
    for (const char* twice : {"self_attn.o_proj", "self_attn.out_proj", "resid_attn_dropout", "resid_mlp_dropout",
                              "conv.out_proj", "linear_attn.out_proj"}) {
      if (is(twice)) return;  // attn_out, ffn_out, conv, linear_attn
    }
    // A router of several parts: its norm before the weights, which no step has, and the softmax of router.proj.
    if (is("router.norm") || is("router")) return;
    for (const auto& [module, step] :
         {std::pair("self_attn.q_norm", "q_norm"), std::pair("self_attn.k_norm", "k_norm"),
          std::pair("self_attn.q_layernorm", "q_norm"), std::pair("self_attn.k_layernorm", "k_norm"),
          std::pair("self_attn.v_norm", "v_norm"), std::pair("router.proj", "router"),
          std::pair("pre_feedforward_layernorm_2", "pre_ffn_norm_2"),
          std::pair("post_feedforward_layernorm_1", "post_ffn_norm_1"),
          std::pair("post_feedforward_layernorm_2", "post_ffn_norm_2"), std::pair("mlp.gate", "router"),
          std::pair("mlp.shared_expert_gate", "shared_expert_gate")}) {
      if (!is(module)) continue;
      name = layer + step;
      if (string_or(config, "model_type", "", name) == "gemma3_text") values = by_token(tensor, data);
      break;
    }
    if (name == "embed") {  // recorded before its multiplier
      for (float& v : values) v *= static_cast<float>(number_or(config, "embedding_multiplier", 1, name));
    }
    if (!is("self_attn.qkv_proj")) {
      by_step[name] = std::move(values);
      return;
    }
    const auto heads = config["num_attention_heads"].get<size_t>(),
               shared = config["num_key_value_heads"].get<size_t>();
    const auto width = static_cast<size_t>(tensor.shape[1]), dim = width / (heads + 2 * shared);
    size_t first = 0;
    for (const auto& [step, count] :
         {std::pair("q_proj", heads), std::pair("k_proj", shared), std::pair("v_proj", shared)}) {
      for (size_t at = first; at < values.size(); at += width) {
        by_step[layer + step].insert(by_step[layer + step].end(), data + at, data + at + count * dim);
      }
      first += count * dim;
    }
  }
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
  std::map<std::string, std::vector<float>> stages;
  executor.set_tap([&](const Step& step, std::span<const float> data, int, int) {
    const std::string mapped = reference_name(step, plan);
    const std::string name = reference.stage(mapped).empty() ? step.name : mapped;
    if (reference.stage(name).empty()) return;
    std::vector<float>& rows = stages[name];  // a prompt may be run in pieces
    rows.insert(rows.end(), data.begin(), data.end());
  });
  Context(executor).forward(reference.ids("prompt_ids"), Logits::kAll);
  executor.set_tap(nullptr);
  for (const auto& [name, rows] : stages) {
    const std::span<const float> expected = reference.stage(name);
    EXPECT_EQ(rows.size(), expected.size()) << name;
    if (rows.size() == expected.size()) errors[name] = relative_error(rows, expected);
  }
  return errors;
}

}  // namespace doppler::testing
