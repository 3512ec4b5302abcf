#include "import/adapter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "format/decode.h"
#include "import/gguf_config.h"
#include "import/lora.h"
#include "import/tensor_map.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxAdapterRank = 4096;

// Where a product for a tensor of the checkpoint goes: to a slot, or to each of those whose rows the tensor stacks.
struct Target {
  std::string slot;
  int64_t rows = 0, cols = 0;  // of the slot
  int64_t first = 0, all = 0;  // its first row in the tensor, and the tensor's rows
  int paired_head = 0;         // > 0: heads of this many rows lie in the order of rotated pairs

  // Of the tensor, for row `row` of the slot.
  int64_t stored_row(int64_t row) const {
    if (paired_head == 0) return first + row;
    const int64_t within = row % paired_head, half = paired_head / 2;
    return first + row - within + within % half * 2 + within / half;
  }
};
using Targets = std::multimap<std::string, Target>;  // by the tensor's name

using Products = std::map<std::string, LoraAdapter::Delta>;  // likewise

// What an adapter may change: matrices that are multiplied with, but for those that are tables, too.
std::vector<WeightUse> adaptable(const Plan& plan) {
  std::vector<WeightUse> uses;
  for (const Step& step : plan.steps) {
    if (std::holds_alternative<MatMul>(step.op) && step.weights[0].slot != "embed") uses.push_back(step.weights[0]);
  }
  return uses;
}

Target target_of(const WeightUse& use, const std::vector<std::string>& stacked, const std::vector<WeightUse>& uses) {
  Target target{use.slot, use.shape[0], use.shape[1], 0, use.shape[0]};
  if (stacked.empty()) return target;
  target.all = 0;
  for (const std::string& slot : stacked) {
    if (slot == use.slot) target.first = target.all;
    const auto other = std::find_if(uses.begin(), uses.end(), [&](const WeightUse& u) { return u.slot == slot; });
    if (other != uses.end()) target.all += other->shape[0];
  }
  return target;
}

// Has the family a name for the slot? rule_for() fails where it has none.
bool names(const Family& family, const std::string& slot) {
  const std::string pattern = layer_of(slot) < 0 ? slot : "layer{i}" + slot.substr(slot.find('.'));
  return find(require_object(family.json, "tensors", family.file), pattern) != nullptr;
}

Targets checkpoint_targets(const Family& family, const TensorLayout& layout, const std::vector<WeightUse>& uses) {
  Targets targets;
  for (const WeightUse& use : uses) {
    if (!names(family, use.slot)) continue;
    const TensorRule rule = rule_for(family, use.slot, layout);
    if (rule.second.empty() && rule.name.find("{e}") == std::string::npos)
      targets.emplace(rule.name, target_of(use, rule.stacked, uses));
  }
  return targets;
}

Targets gguf_targets(const Family& family, const ModelConfig& config, const std::vector<WeightUse>& uses) {
  Targets targets;
  for (const WeightUse& use : uses) {
    if (!names(family, use.slot)) continue;
    const std::vector<std::string> found = gguf_names(family, use.slot);
    if (found.size() != 1) continue;
    const TensorRule rule = rule_for(family, use.slot, layouts_of(family).front());
    const bool stacked = std::all_of(rule.stacked.begin(), rule.stacked.end(),
                                     [&](const std::string& slot) { return gguf_names(family, slot) == found; });
    Target target = target_of(use, stacked ? rule.stacked : std::vector<std::string>(), uses);
    if (gguf_pair_rotated(family, use.slot)) target.paired_head = config.head_dim;
    targets.emplace(found[0], target);
  }
  return targets;
}

std::vector<std::string> faults_of(const Products& products, const Targets& targets) {
  std::vector<std::string> faults;
  for (const auto& [name, product] : products) {
    const auto target = targets.find(name);
    const std::vector<int64_t> shape{product.b.rows(), product.a.cols()};
    if (target == targets.end()) {
      faults.push_back(fmt::format("{} is no matrix of this model that an adapter can change{}", name,
                                   name.find("exp") == std::string::npos ? "" : ": experts are not adapted"));
    } else if (const std::vector<int64_t> own{target->second.all, target->second.cols}; own != shape) {
      faults.push_back(fmt::format("{} is for {}, and the model's is {}", name, shape_text(shape), shape_text(own)));
    }
  }
  return faults;
}

// A checkpoint's names do not say which family they are of; that of the model is the one in which all of them are
// names of its matrices.
Targets targets_for(const Products& products, const std::vector<WeightUse>& uses) {
  Targets best;
  size_t least = SIZE_MAX;
  for (const Family& family : families()) {
    for (const TensorLayout& layout : layouts_of(family)) {
      Targets targets = checkpoint_targets(family, layout, uses);
      const size_t faults = faults_of(products, targets).size();
      if (faults >= least) continue;
      least = faults;
      best = std::move(targets);
      if (faults == 0) return best;
    }
  }
  return best;
}

void check_gguf(const GgufFile& file) {
  const auto text = [&](const char* key) {
    const GgufValue* value = file.find(key);
    return value ? std::string(value->string()) : "";
  };
  const auto refuse = [&](ErrorCode code, const std::string& what, const std::string& key, const std::string& expected,
                          const std::string& got) {
    fail({.code = code, .what = what, .where = file.where() + ": " + key, .expected = expected, .got = got});
  };
  if (text("general.type") != "adapter")
    refuse(ErrorCode::kFile, "this is not an adapter", "general.type", "adapter", text("general.type"));
  const std::string asks = "the adapter asks for something that is not supported";
  if (text("adapter.type") != "lora")
    refuse(ErrorCode::kUnsupported, asks, "adapter.type", "lora", text("adapter.type"));
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with("adapter.") && key != "adapter.type" && key != "adapter.lora.alpha")
      refuse(ErrorCode::kUnsupported, asks, std::string(key), "no such key", "");
  }
}

Products gguf_products(const GgufFile& file) {
  constexpr std::string_view kHalfA = ".lora_a", kHalfB = ".lora_b";
  Products products;
  for (const Tensor& tensor : file.tensors()) {
    const std::string& name = tensor.name;
    const bool is_a = name.ends_with(kHalfA);
    if ((!is_a && !name.ends_with(kHalfB)) || tensor.shape.size() != 2) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "a tensor of the adapter is none of a thin product",
            .where = file.where() + ": " + name,
            .expected = "….lora_a and ….lora_b"});
    }
    LoraAdapter::Delta& product = products[name.substr(0, name.size() - kHalfA.size())];
    (is_a ? product.a : product.b) = tensor;
  }
  const GgufValue* alpha = file.find("adapter.lora.alpha");
  for (auto& [name, product] : products) {
    const bool whole = !product.a.shape.empty() && !product.b.shape.empty();
    if (!whole || product.a.rows() != product.b.cols() || product.a.rows() > kMaxAdapterRank) {
      fail({.code = ErrorCode::kFormat,
            .what = "the halves of a thin product do not fit",
            .where = file.where() + ": " + name,
            .expected = fmt::format("[rank, in] and [out, rank], a rank of at most {}", kMaxAdapterRank),
            .got = whole ? shape_text(product.a.shape) + " and " + shape_text(product.b.shape) : "one half"});
    }
    const double times = alpha ? alpha->number() : 0;  // none: as they are
    product.scale = times == 0 ? 1 : static_cast<float>(times / static_cast<double>(product.a.rows()));
  }
  return products;
}

std::vector<float> decoded(const Tensor& tensor, const std::string& where) {
  const auto cols = static_cast<size_t>(tensor.cols());
  std::vector<float> values(static_cast<size_t>(tensor.rows()) * cols);
  for (int64_t row = 0; row < tensor.rows(); ++row)
    decode_row(tensor.dtype, tensor.row(row), values.data() + static_cast<size_t>(row) * cols, cols);
  if (!all_finite(values.data(), values.size())) {
    fail({.code = ErrorCode::kFormat,
          .what = "a weight is not a finite number",
          .where = where + ": " + tensor.name,
          .todo = "The adapter is damaged; fetch it again"});
  }
  return values;
}

LoraPair pair_for(const Target& target, const LoraAdapter::Delta& product, const std::string& where) {
  LoraPair pair{.rank = static_cast<int>(product.a.rows()),
                .in = static_cast<int>(target.cols),
                .out = static_cast<int>(target.rows),
                .scale = product.scale,
                .a = decoded(product.a, where),
                .b = {}};
  const std::vector<float> b = decoded(product.b, where);
  const auto rank = static_cast<size_t>(pair.rank), rows = static_cast<size_t>(target.rows);
  pair.b.resize(rank * rows);
  for (size_t row = 0; row < rows; ++row) {
    const auto stored = static_cast<size_t>(target.stored_row(static_cast<int64_t>(row)));
    for (size_t r = 0; r < rank; ++r) pair.b[r * rows + row] = b[stored * rank + r];
  }
  return pair;
}

void check_size(const Products& products, uint64_t memory, const std::string& where) {
  uint64_t bytes = 0;
  for (const auto& [name, product] : products)
    bytes += static_cast<uint64_t>(product.a.rows() * (product.a.cols() + product.b.rows())) * sizeof(float);
  if (bytes <= memory) return;
  fail({.code = ErrorCode::kMemory,
        .what = "the adapter does not fit in memory",
        .where = where,
        .expected = fmt::format("at most {} bytes", memory),
        .got = fmt::format("{} bytes", bytes)});
}

Adapter make_adapter(const AdapterSpec& spec, const Products& products, const Targets& targets, uint64_t memory) {
  const std::string where = spec.path.string();
  check_faults(faults_of(products, targets), "the adapter does not fit the model", where,
               "Name the adapter's own base model");
  check_size(products, memory, where);
  Adapter adapter{.name = name_of_adapter(spec.path), .scale = spec.scale, .pairs = {}};
  for (const auto& [name, product] : products) {
    const auto [first, last] = targets.equal_range(name);
    for (auto target = first; target != last; ++target)
      adapter.pairs.emplace(target->second.slot, pair_for(target->second, product, where));
  }
  return adapter;
}

}  // namespace

std::string name_of_adapter(const fs::path& path) {
  const fs::path name = path.filename().empty() ? path.parent_path() : path;
  return name.extension() == ".gguf" ? name.stem().string() : name.filename().string();
}

Adapter load_adapter(const AdapterSpec& spec, const ModelConfig& config, const Plan& plan, uint64_t memory) {
  const std::vector<WeightUse> uses = adaptable(plan);
  if (is_gguf(spec.path)) {
    const GgufFile file(spec.path);
    check_gguf(file);
    return make_adapter(spec, gguf_products(file), gguf_targets(family_for_gguf(file), config, uses), memory);
  }
  const LoraAdapter peft(spec.path);
  return make_adapter(spec, peft.deltas(), targets_for(peft.deltas(), uses), memory);
}

}  // namespace doppler
