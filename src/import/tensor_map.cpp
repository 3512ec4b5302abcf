#include "import/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "format/decode.h"

namespace doppler {
namespace {

constexpr size_t kMaxNamed = 12;  // faults spelt out in one message

TensorLayout find_layout(const Family& family, const CheckpointTensors& source, const std::string& where) {
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
  return !a.rows && !b.rows && a.dtype == b.dtype && a.shape == b.shape &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
}

// Rows of the tensor that holds the slots of rule.stacked behind each other.
struct Stack {
  int64_t first = 0, all = 0;
};
Stack stack_of(const WeightUse& use, const TensorRule& rule, const std::vector<WeightUse>& uses) {
  Stack stack;
  for (const std::string& slot : rule.stacked) {
    if (slot == use.slot) stack.first = stack.all;
    const auto other = std::find_if(uses.begin(), uses.end(), [&](const WeightUse& u) { return u.slot == slot; });
    if (other != uses.end()) stack.all += other->shape[0];
  }
  return stack;
}

std::string of_expert(std::string name, int64_t expert) {
  const size_t at = name.find("{e}");
  return at == std::string::npos ? name : name.replace(at, 3, std::to_string(expert));
}

// The tensors of a slot by name, in the order of MappedTensor::plain.
std::vector<std::string> names_of(const WeightUse& use, const TensorRule& rule) {
  std::vector<std::string> names;
  const bool apart = rule.name.find("{e}") != std::string::npos;
  for (int64_t e = 0; e < (apart ? use.shape[0] : 1); ++e) {
    names.push_back(of_expert(rule.name, e));
    if (!rule.second.empty()) names.push_back(of_expert(rule.second, e));
  }
  return names;
}

// Experts lie in tensors of their own or stacked in one; whichever of the two the family's file says, some writers
// (those that quantise, above all) do the other.
TensorRule as_stored(TensorRule rule, const CheckpointTensors& source) {
  struct Names {
    std::string stacked, first, second;
  };
  static const Names kParts[] = {{"gate_up_proj", "gate_proj", "up_proj"}, {"down_proj", "down_proj", ""}};
  constexpr std::string_view kExperts = "experts.";
  const size_t at = rule.name.find(kExperts);
  if (rule.role != "expert" || at == std::string::npos) return rule;
  const std::string base = rule.name.substr(0, at + kExperts.size()), part = rule.name.substr(base.size());
  const auto of = [&](const std::string& expert, const std::string& name) { return base + expert + name + ".weight"; };
  for (const auto& [stacked, first, second] : kParts) {
    const bool apart = source.find(of("0.", first));
    if (part == stacked && apart && !source.find(rule.name)) {
      rule.name = of("{e}.", first);
      rule.second = second.empty() ? "" : of("{e}.", second);
      rule.halves = false;
    } else if (part == "{e}." + first + ".weight" && !apart && source.find(base + stacked)) {
      rule.name = base + stacked;
      rule.second = "";
      rule.halves = !second.empty();
    }
  }
  return rule;
}

// Finds a slot's source and checks dtype and shape; what is wrong goes to `faults`.
MappedTensor map_one(const WeightUse& use, TensorRule rule, const std::vector<WeightUse>& uses,
                     const CheckpointTensors& source, std::vector<std::string>& faults) {
  MappedTensor out{use.slot, std::move(rule), use.shape};
  const std::vector<std::string> names = names_of(use, out.rule);
  std::vector<int64_t> expected = use.shape;
  if (out.rule.name.find("{e}") != std::string::npos) expected.erase(expected.begin());
  if (!out.rule.second.empty()) expected[expected.size() - 2] /= 2;
  const Stack stack = stack_of(use, out.rule, uses);
  if (stack.all > 0) expected[0] = stack.all;
  for (const std::string& name : names) {
    const RawTensor* raw = source.find(name);
    Tensor tensor;
    if (!raw) {
      if (!out.rule.blocks.empty()) break;
      faults.push_back(
          fmt::format("{} is missing, but the config calls for it with shape {}", name, shape_text(expected)));
    } else if (raw->shape != expected) {
      faults.push_back(fmt::format("{} has shape {}, but the config calls for {}", name, shape_text(raw->shape),
                                   shape_text(expected)));
    } else if (!raw->rows && !to_tensor(*raw, tensor)) {
      faults.push_back(fmt::format("{} has dtype {}, but only BF16, F16 and F32 are weights", name, raw->dtype));
    } else if (!out.plain.empty() && !raw->rows && !out.plain[0].rows && raw->dtype != out.plain[0].dtype) {
      faults.push_back(fmt::format("{} is {}, but {} is {}", name, raw->dtype, names[0], out.plain[0].dtype));
    }
    if (!raw) continue;
    out.plain.push_back(*raw);
    if (stack.all == 0 || raw->shape != expected) continue;
    RawTensor& part = out.plain.back();
    out.first_row = stack.first;
    const size_t row = part.bytes.size() / static_cast<size_t>(stack.all);
    part.shape[0] = use.shape[0];
    part.bytes = part.bytes.subspan(static_cast<size_t>(stack.first) * row, static_cast<size_t>(use.shape[0]) * row);
  }
  if (!out.plain.empty() || out.rule.blocks.empty()) return out;
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
  faults.push_back(
      fmt::format("{} is missing, but the config calls for it with shape {}", out.rule.blocks, shape_text(use.shape)));
  return out;
}

}  // namespace

MappedTensor::Place MappedTensor::place_of(int64_t row) const {
  if (plain.size() == 1 && !rule.halves) return {0, row};
  const int64_t alternate = rule.second.empty() ? 1 : 2, rows = shape[shape.size() - 2];
  if (rule.halves) return {0, row / rows * rows + row % 2 * (rows / 2) + row % rows / 2};
  const int64_t group = row / rows, within = row % rows;
  return {static_cast<size_t>(group * alternate + within % alternate), within / alternate};
}

bool MappedTensor::is_decoded() const {
  return std::any_of(plain.begin(), plain.end(), [](const RawTensor& raw) { return raw.rows != nullptr; });
}

SlotRows::SlotRows(const MappedTensor& mapped) : mapped_(mapped) {
  for (const RawTensor& raw : mapped.plain) {
    Tensor& part = parts_.emplace_back();
    part.shape = raw.shape;
    if (!raw.rows && !to_tensor(raw, part))
      fail({.code = ErrorCode::kInternal, .what = "not a weight", .where = raw.name});
    count_ += part.rows();
  }
}

void SlotRows::decode(int64_t row, float* out) const {
  const MappedTensor::Place place = mapped_.place_of(row);
  const Tensor& part = parts_[place.tensor];
  if (const auto& rows = mapped_.plain[place.tensor].rows)
    rows->decode(mapped_.first_row + place.row, out);
  else
    decode_row(part.dtype, part.row(place.row), out, static_cast<size_t>(part.cols()));
}

std::vector<WeightUse> weights_of(const Plan& plan) {
  std::vector<WeightUse> out;
  std::set<std::string> seen;
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) {
      if (seen.insert(use.slot).second) out.push_back(use);
    }
  }
  out.insert(out.end(), plan.dense.begin(), plan.dense.end());
  return out;
}

TensorMap map_tensors(const Family& family, ModelConfig& config, const CheckpointTensors& source,
                      const std::string& where) {
  TensorMap map{.tensors = {}, .notes = source.notes()};
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
  const std::string measured = string_or(family.json, "ffn_rows_of", "", family.file);
  const RawTensor* matrix = measured.empty() ? nullptr : source.find(rule_for(family, measured, layout).name);
  if (matrix && matrix->shape.size() == 2 && matrix->shape[0] > 0 && matrix->shape[0] <= (1 << 22))
    config.ffn = static_cast<int>(matrix->shape[0]);
  check(config, where);

  std::set<std::string> used;
  const std::vector<WeightUse> uses = weights_of(build_plan(config));
  for (const WeightUse& use : uses) {
    const MappedTensor& tensor = map.tensors.emplace_back(
        map_one(use, as_stored(rule_for(family, use.slot, layout), source), uses, source, faults));
    for (const RawTensor& raw : tensor.plain) used.insert(raw.name);
    for (const RawTensor* raw : {tensor.blocks, tensor.scales}) {
      if (raw) used.insert(raw->name);
    }
  }
  std::map<std::string, int> ignored;
  const bool headless = !config.makes_text();
  const std::string head = config.tied_output || headless ? rule_for(family, "lm_head", layout).name : "";
  for (const auto& [name, raw] : source.tensors()) {
    if (used.count(name)) continue;
    const std::string why = why_ignored(family, name);
    if (!why.empty()) {
      ++ignored[why];
    } else if (name == head && headless) {
      map.notes.push_back(fmt::format("{} is left out: the model makes vectors of texts, and no text", name));
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
  check_faults(std::move(faults), "the config and the tensors disagree", where,
               "The checkpoint is incomplete, or its family's file does not describe it");
  return map;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void check_faults(std::vector<std::string> faults, const std::string& what, const std::string& where,
                  const std::string& todo) {
  if (faults.empty()) return;
  const size_t more = faults.size() > kMaxNamed ? faults.size() - kMaxNamed : 0;
  if (more) faults.resize(kMaxNamed);
  fail({.code = ErrorCode::kFormat,
        .what = what,
        .where = where,
        .got = fmt::format("{}{}", fmt::join(faults, "; "), more ? fmt::format("; and {} more", more) : ""),
        .todo = todo});
}

}  // namespace doppler
