#include "import/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace doppler {
namespace {

constexpr size_t kMaxNamed = 12;  // faults spelt out in one message

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

TensorLayout find_layout(const Family& family, const SafetensorsFolder& source, const std::string& where) {
  std::vector<std::string> tried;
  for (const TensorLayout& layout : layouts_of(family)) {
    const std::string name = rule_for(family, "embed", layout).name;
    if (source.find(name)) return layout;
    tried.push_back(name);
  }
  fail({.code = ErrorCode::kFormat,
        .what = "the checkpoint has no embedding by any name its family uses",
        .where = where,
        .expected = fmt::format("{}", fmt::join(tried, " or "))});
}

bool same_bytes(const RawTensor& a, const RawTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
}

// Finds a slot's source and checks dtype and shape; what is wrong goes to `faults`.
MappedTensor map_one(const WeightUse& use, TensorRule rule, const SafetensorsFolder& source,
                     std::vector<std::string>& faults) {
  MappedTensor out{use.slot, std::move(rule), use.shape};
  out.plain = source.find(out.rule.name);
  if (out.plain) {
    Tensor tensor;
    if (out.plain->shape != use.shape) {
      faults.push_back(fmt::format("{} has shape {}, but the config calls for {}", out.rule.name,
                                   shape_text(out.plain->shape), shape_text(use.shape)));
    } else if (!to_tensor(*out.plain, tensor)) {
      faults.push_back(
          fmt::format("{} has dtype {}, but only BF16, F16 and F32 are weights", out.rule.name, out.plain->dtype));
    }
    return out;
  }
  if (!out.rule.blocks.empty()) {
    out.blocks = source.find(out.rule.blocks);
    out.scales = source.find(out.rule.scales);
    if (out.blocks && out.scales) {
      std::vector<int64_t> scales = use.shape;
      scales.back() = use.shape.back() / 32;
      std::vector<int64_t> blocks = scales;
      blocks.push_back(16);
      if (use.shape.back() % 32 || out.blocks->shape != blocks || out.scales->shape != scales ||
          out.blocks->dtype != "U8" || out.scales->dtype != "U8") {
        faults.push_back(fmt::format("{} {} and {} {} do not pack the {} that the config calls for", out.rule.blocks,
                                     shape_text(out.blocks->shape), out.rule.scales, shape_text(out.scales->shape),
                                     shape_text(use.shape)));
      }
      return out;
    }
  }
  faults.push_back(fmt::format("{} is missing, but the config calls for it with shape {}",
                               out.rule.blocks.empty() ? out.rule.name : out.rule.blocks, shape_text(use.shape)));
  return out;
}

}  // namespace

std::vector<WeightUse> weights_of(const Plan& plan) {
  std::vector<WeightUse> out;
  std::set<std::string> seen;
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) {
      if (seen.insert(use.slot).second) out.push_back(use);
    }
  }
  return out;
}

TensorMap map_tensors(const Family& family, ModelConfig& config, const SafetensorsFolder& source,
                      const std::string& where) {
  TensorMap map;
  std::vector<std::string> faults;
  const TensorLayout layout = find_layout(family, source, where);
  const RawTensor& embed = *source.find(rule_for(family, "embed", layout).name);
  if (embed.shape.size() == 2 && embed.shape[0] > 0 && embed.shape[0] <= (1 << 24)) {
    const int claimed = config.vocab;
    config.vocab = static_cast<int>(embed.shape[0]);
    if (claimed != 0 && claimed != config.vocab) {
      map.notes.push_back(fmt::format("config.json says {} tokens, the embedding has {}: the embedding is right",
                                      claimed, config.vocab));
    }
  }
  check(config, where);

  std::set<std::string> used;
  for (const WeightUse& use : weights_of(build_plan(config))) {
    map.tensors.push_back(map_one(use, rule_for(family, use.slot, layout), source, faults));
    for (const RawTensor* raw : {map.tensors.back().plain, map.tensors.back().blocks, map.tensors.back().scales}) {
      if (raw) used.insert(raw->name);
    }
  }
  std::map<std::string, int> ignored;
  const std::string head = config.tied_output ? rule_for(family, "lm_head", layout).name : "";
  for (const auto& [name, raw] : source.tensors()) {
    if (used.count(name)) continue;
    const std::string why = why_ignored(family, name);
    if (!why.empty()) {
      ++ignored[why];
    } else if (name == head && same_bytes(raw, embed)) {
      map.notes.push_back(
          fmt::format("{} is left out: it repeats the embedding, which is also the output matrix", name));
    } else if (name == head) {
      faults.push_back(fmt::format("{} is there and differs from the embedding, but the config ties the two", name));
    } else {
      faults.push_back(fmt::format("{} {} is there, but nothing uses it", name, shape_text(raw.shape)));
    }
  }
  for (const auto& [why, count] : ignored) map.notes.push_back(fmt::format("{} tensors are left out: {}", count, why));
  if (!faults.empty()) {
    const size_t more = faults.size() > kMaxNamed ? faults.size() - kMaxNamed : 0;
    if (more) faults.resize(kMaxNamed);
    fail({.code = ErrorCode::kFormat,
          .what = "the config and the tensors disagree",
          .where = where,
          .got = fmt::format("{}{}", fmt::join(faults, "; "), more ? fmt::format("; and {} more", more) : ""),
          .todo = "The checkpoint is incomplete, or its family's file does not describe it"});
  }
  return map;
}

}  // namespace doppler
