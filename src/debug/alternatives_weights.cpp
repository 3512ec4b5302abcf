// Other weights of the same shape, and other ways to read the same.
#include <fmt/format.h>

#include <algorithm>

#include "debug/alternatives.h"
#include "debug/change_list.h"

namespace doppler {
namespace {

using Order = std::function<int64_t(int64_t)>;

struct Heads {
  int64_t heads, group, dim, turned;  // group: query heads of a key head
};

// How rows (or columns) of heads lie in files. Each says where row r of the model lies in what was read.
std::vector<std::pair<std::string, Order>> head_orders(const Heads& h) {
  std::vector<std::pair<std::string, Order>> list;
  const auto in_head = [&](const char* name, auto order) {
    list.emplace_back(name, [h, order](int64_t r) {
      const int64_t i = r % h.dim;
      return i < h.turned ? r - i + order(i) : r;
    });
  };
  const int64_t half = h.turned / 2;
  in_head("turned pairs side by side put in halves",
          [half](int64_t i) { return i < half ? 2 * i : 2 * (i - half) + 1; });
  in_head("turned pairs in halves put side by side", [half](int64_t i) { return i % 2 == 0 ? i / 2 : half + i / 2; });
  if (h.heads < 2) return list;
  list.emplace_back("dim by dim read head by head", [h](int64_t r) { return r % h.dim * h.heads + r / h.dim; });
  list.emplace_back("head by head read dim by dim", [h](int64_t r) { return r % h.heads * h.dim + r / h.heads; });
  list.emplace_back("heads in reverse order", [h](int64_t r) { return (h.heads - 1 - r / h.dim) * h.dim + r % h.dim; });
  if (h.group > 1 && h.group < h.heads) {
    const int64_t kv = h.heads / h.group;
    const auto reorder = [&](const char* name, auto order) {
      list.emplace_back(name, [h, order](int64_t r) { return order(r / h.dim) * h.dim + r % h.dim; });
    };
    reorder("heads of one key head put together",
            [h, kv](int64_t head) { return head % h.group * kv + head / h.group; });
    reorder("heads of one key head put apart", [h, kv](int64_t head) { return head % kv * h.group + head / kv; });
  }
  return list;
}

int64_t turned_dims(const DebuggedModel& model, int layer) {
  for (const Step& step : model.plan.steps) {
    const auto* op = std::get_if<Rope>(&step.op);
    if (op && step.layer == layer && op->dims > 0) return op->dims;
  }
  return model.config.head_dim;
}

// Another step of the layer with the same input and a matrix of the same shape.
std::vector<size_t> siblings(const Plan& plan, size_t s) {
  std::vector<size_t> list;
  for (size_t t = 0; t < plan.steps.size(); ++t) {
    const Step &step = plan.steps[s], &other = plan.steps[t];
    if (std::holds_alternative<MatMul>(other.op) && other.inputs == step.inputs && !other.weights.empty() &&
        other.weights[0].shape == step.weights[0].shape) {
      list.push_back(t);
    }
  }
  return list;
}

void stacked(ChangeList& list, const Plan& plan, size_t s) {
  const std::vector<size_t> family = siblings(plan, s);
  if (family.size() != 2) return;
  const std::vector<std::string> slots{plan.steps[family[0]].weights[0].slot, plan.steps[family[1]].weights[0].slot};
  const int64_t rows = plan.steps[s].weights[0].shape[0], second = s == family[1] ? 1 : 0;
  const auto add = [&](const char* instead, Order order) {
    list.add("rows of " + slots[0] + " and " + slots[1], "as they lie", instead, [slots, order](Formula& f) {
      f.matrix.slots = slots;
      f.matrix.row = order;
    });
  };
  add("interleaved in the file", [second](int64_t r) { return 2 * r + second; });
  add("in halves in the file", [rows, second](int64_t r) {
    const int64_t at = r + second * rows;
    return at / 2 + at % 2 * rows;
  });
}

// Queries, keys and values of one file's matrix, group by group where they were read one after the other.
void grouped(ChangeList& list, const DebuggedModel& model, size_t s) {
  const Plan& plan = model.plan;
  std::vector<const Step*> parts;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    parts.push_back(plan.find(fmt::format("layer{}.{}", plan.steps[s].layer, name)));
    if (!parts.back() || parts.back()->weights.empty()) return;
  }
  const auto which = std::find(parts.begin(), parts.end(), &plan.steps[s]) - parts.begin();
  const int64_t dim = model.config.head_dim, group = model.config.heads / std::max(1, model.config.kv_heads);
  if (which == 3 || dim < 1 || (group == 1 && model.config.heads == 1)) return;
  const std::vector<std::string> slots{parts[0]->weights[0].slot, parts[1]->weights[0].slot, parts[2]->weights[0].slot};
  list.add("rows of queries, keys and values", "one after the other in the file", "key head by key head in the file",
           [=](Formula& f) {
             f.matrix.slots = slots;
             f.matrix.row = [=](int64_t r) {
               const int64_t head = r / dim, i = r % dim;
               if (which == 0) return (head / group * (group + 2) + head % group) * dim + i;
               return (head * (group + 2) + group + which - 1) * dim + i;
             };
           });
}

void matrix_readings(ChangeList& list, const DebuggedModel& model, size_t s) {
  const Step& step = model.plan.steps[s];
  const std::string& slot = step.weights[0].slot;
  const auto& shape = step.weights[0].shape;
  const ModelConfig& config = model.config;
  if (shape[0] == shape[1] && shape[0] <= 8192) {
    list.add("weight " + slot, "as it lies", "transposed", [](Formula& f) { f.matrix.transposed = true; });
  }
  const int64_t group = config.heads / std::max(1, config.kv_heads), turned = turned_dims(model, step.layer);
  for (const bool columns : {false, true}) {
    const int64_t size = columns ? shape[1] : shape[0];
    const bool queries = size == config.q_width(), keys = size == config.kv_width();
    if (step.layer < 0 || (!queries && !keys)) continue;
    const Heads heads{size / config.head_dim, queries ? group : 1, config.head_dim, turned};
    for (const auto& [name, order] : head_orders(heads)) {
      list.add((columns ? "columns of " : "rows of ") + slot, "as they lie", name,
               [columns, o = order](Formula& f) { (columns ? f.matrix.column : f.matrix.row) = o; });
    }
  }
  stacked(list, model.plan, s);
  grouped(list, model, s);
  for (const DType type : {DType::kBF16, DType::kF16}) {
    list.add("weight " + slot, "as stored", fmt::format("rounded to {}", name_of(type)),
             [type](Formula& f) { f.matrix.rounded = type; });
  }
}

void expert_readings(ChangeList& list, const Step& step) {
  const std::string& slot = step.weights[0].slot;
  const int64_t half = step.weights[0].shape[1] / 2;
  list.add("rows of " + slot, "as they lie", "halves interleaved",
           [half](Formula& f) { f.matrix.row = [half](int64_t r) { return r % 2 * half + r / 2; }; });
  list.add("rows of " + slot, "as they lie", "interleaved ones in halves",
           [half](Formula& f) { f.matrix.row = [half](int64_t r) { return r < half ? 2 * r : 2 * (r - half) + 1; }; });
  for (const int shift : {1, -1}) {
    list.add("expert", "e", shift > 0 ? "e + 1" : "e - 1", [shift](Formula& f) { f.matrix.expert_shift = shift; });
  }
}

// Biases of the layer that fit the matrix, which the plan leaves out.
void unused_biases(ChangeList& list, const Step& step) {
  const std::string layer = step.name.substr(0, step.name.find('.') + 1);
  std::vector<int64_t> shape = step.weights[0].shape;
  shape.pop_back();
  for (const auto& [slot, tensor] : list.model().weights.all()) {
    if (tensor.shape != shape || slot.rfind(layer, 0) != 0 || slot.find("bias") == std::string::npos) continue;
    list.add("bias", "none", slot, [other = slot](Formula& f) {
      if (auto* matrix = std::get_if<MatMul>(&f.op)) matrix->bias = true;
      if (auto* experts = std::get_if<ExpertMatMul>(&f.op)) experts->bias = true;
      f.second.slots = {other};
    });
  }
}

void swaps(std::vector<Change>& changes, const Recomputation& r) {
  const Plan& plan = r.model().plan;
  for (const size_t a : r.steps()) {
    for (const size_t b : r.steps()) {
      const Step &one = plan.steps[a], &two = plan.steps[b];
      if (a >= b || one.weights.empty() || two.weights.empty() || one.weights[0].shape != two.weights[0].shape)
        continue;
      const std::string first = one.weights[0].slot, second = two.weights[0].slot;
      if (first == second || one.op.index() != two.op.index()) continue;
      changes.push_back({{{a, [second](Formula& f) { f.matrix.slots = {second}; }},
                          {b, [first](Formula& f) { f.matrix.slots = {first}; }}},
                         "weights",
                         first + " and " + second,
                         "the same swapped"});
    }
  }
}

}  // namespace

std::vector<Change> other_weights(const Recomputation& r) {
  const Plan& plan = r.model().plan;
  ChangeList list(r.model());
  std::vector<Change> changes;
  swaps(changes, r);
  for (const size_t s : r.steps()) {
    const Step& step = plan.steps[s];
    list.begin(s);
    const auto* matrix = std::get_if<MatMul>(&step.op);
    const auto* experts = std::get_if<ExpertMatMul>(&step.op);
    if ((matrix && !matrix->bias) || (experts && !experts->bias)) unused_biases(list, step);
    if ((matrix && matrix->bias) || (experts && experts->bias)) {
      list.add("bias", "added", "left out", [](Formula& f) { f.bias_times = 0; });
      list.add("bias", "added once", "added twice", [](Formula& f) { f.bias_times = 2; });
    }
    for (size_t w = 0; w < step.weights.size(); ++w) {
      for (const auto& [slot, tensor] : r.model().weights.all()) {
        if (slot == step.weights[w].slot || tensor.shape != step.weights[w].shape) continue;
        list.add(w == 0 ? "weight" : "bias", step.weights[w].slot, slot,
                 [w, other = slot](Formula& f) { (w == 0 ? f.matrix : f.second).slots = {other}; });
      }
    }
    if (matrix) matrix_readings(list, r.model(), s);
    if (experts) expert_readings(list, step);
  }
  for (Change& change : list.take()) changes.push_back(std::move(change));
  return changes;
}

}  // namespace doppler
