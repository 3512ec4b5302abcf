#include "debug/recompute.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace doppler {
namespace {

bool known(const Operation& op) {
  if (const auto* glu = std::get_if<Glu>(&op); glu && glu->one_gate) return false;
  return std::visit(
      [](const auto& o) {
        using T = std::decay_t<decltype(o)>;
        return std::is_same_v<T, Embed> || std::is_same_v<T, Norm> || std::is_same_v<T, MatMul> ||
               std::is_same_v<T, Rope> || std::is_same_v<T, Attention> || std::is_same_v<T, Glu> ||
               std::is_same_v<T, Add> || std::is_same_v<T, Route> || std::is_same_v<T, ExpertMatMul> ||
               std::is_same_v<T, Combine> || std::is_same_v<T, SoftCap> || std::is_same_v<T, Scale>;
      },
      op);
}

}  // namespace

Recomputation::Recomputation(const DebuggedModel& model, const Stages& source, std::span<const int32_t> tokens,
                             const Step& target, Sample sample)
    : model_(model),
      source_(source),
      tokens_(tokens.begin(), tokens.end()),
      target_(target),
      sample_(std::move(sample)),
      maker_(model.plan.values.size(), model.plan.steps.size()),
      stages_(model.plan.values.size(), nullptr) {
  for (size_t s = 0; s < model_.plan.steps.size(); ++s) maker_[index(model_.plan.steps[s].output)] = s;
  for (size_t v = 0; v < stages_.size(); ++v) {
    stages_[v] = source_.find(model_.plan.values[v].name);
    if (stages_[v] && stages_[v]->width != model_.plan.values[v].width) stages_[v] = nullptr;
  }
  if (sample_.positions.empty()) return;
  end_ = sample_.positions.back() + 1;
  all_.resize(index(end_));
  std::iota(all_.begin(), all_.end(), 0);
  std::vector<char> seen(stages_.size(), 0);
  possible_ = find_steps(target_.output, false, seen);
  std::sort(steps_.begin(), steps_.end());
}

const Stage* Recomputation::stage_of(int value) const { return stages_[index(value)]; }

// Walks back from a value to what is recorded; `all`: for all positions.
bool Recomputation::find_steps(int value, bool all, std::vector<char>& seen) {
  const Stage* stage = stage_of(value);
  if (stage && value != target_.output) {
    const int first = all ? 0 : sample_.positions.front();
    if (stage->position <= first && stage->position + stage->rows() >= end_) return true;
  }
  stages_[index(value)] = nullptr;
  const size_t s = maker_[index(value)];
  if (s == model_.plan.steps.size()) return false;
  const Step& step = model_.plan.steps[s];
  char& state = seen[index(value)];
  const char wanted = all ? 2 : 1;
  if (state >= wanted) return true;
  if (state == 0) steps_.push_back(s);
  state = wanted;
  if (!known(step.op)) return false;
  for (const WeightUse& use : step.weights) {
    if (!model_.weights.find(use.slot)) return false;
  }
  if (std::holds_alternative<Embed>(step.op)) return tokens_.size() >= index(end_);
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const bool keys = std::holds_alternative<Attention>(step.op) && i > 0;
    if (!find_steps(step.inputs[i], all || keys, seen)) return false;
  }
  return true;
}

bool Recomputation::is_leaf(int value) const {
  return value != target_.output && stage_of(value) && formulas_.count(maker_[index(value)]) == 0;
}

bool Recomputation::changed(int value) {
  if (is_leaf(value)) return false;
  if (const auto found = dirty_.find(value); found != dirty_.end()) return found->second;
  const size_t s = maker_[index(value)];
  bool dirty = formulas_.count(s) > 0;
  for (const int input : model_.plan.steps[s].inputs) dirty = dirty || changed(input);
  return dirty_[value] = dirty;
}

std::vector<float> Recomputation::taken_from(const Stage& stage) const {
  std::vector<float> out;
  for (const int p : sample_.positions) {
    const std::span<const float> row = stage.row(p - stage.position);
    if (sample_.columns.empty()) out.insert(out.end(), row.begin(), row.end());
    for (const int c : sample_.columns) out.push_back(row[index(c)]);
  }
  return out;
}

Recomputation::Values Recomputation::get(int value, bool all, bool columns) {
  all = all && sample_.positions.size() != all_.size();
  columns = columns && !sample_.columns.empty();
  const bool leaf = is_leaf(value), dirty = !leaf && changed(value);
  std::map<Key, Values>& cache = dirty ? now_ : base_;
  const Key key{value, all, columns};
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  std::vector<float> out;
  if (leaf) {
    const Stage& stage = *stage_of(value);
    for (const int p : positions(all)) {
      const std::span<const float> row = stage.row(p - stage.position);
      if (!columns) out.insert(out.end(), row.begin(), row.end());
      if (columns) {
        for (const int c : sample_.columns) out.push_back(row[index(c)]);
      }
    }
  } else {
    out = compute(maker_[index(value)], all, columns);
  }
  return cache[key] = std::make_shared<const std::vector<float>>(std::move(out));
}

Formula Recomputation::planned(size_t s) const {
  const Step& step = model_.plan.steps[s];
  Formula f;
  f.op = step.op;
  f.inputs = step.inputs;
  if (!step.weights.empty()) f.matrix.slots = {step.weights[0].slot};
  if (step.weights.size() > 1) f.second.slots = {step.weights[1].slot};
  if (std::holds_alternative<Scale>(step.op) && !step.weights.empty())
    f.learned = factor_of(step, model_.weights) / std::get<Scale>(step.op).factor;
  if (const auto* rope = std::get_if<Rope>(&step.op)) f.rope = model_.config.ropes[index(rope->rope)];
  f.context = model_.context;
  return f;
}

Formula Recomputation::current(size_t s) const {
  const auto found = formulas_.find(s);
  return found != formulas_.end() ? found->second : planned(s);
}

std::vector<float> Recomputation::run(std::span<const Change* const> changes) {
  now_.clear();
  dirty_.clear();
  formulas_.clear();
  for (const Change* change : changes) {
    for (const auto& [s, edit] : change->edits) edit(formulas_.try_emplace(s, planned(s)).first->second);
  }
  return *get(target_.output, false, true);
}

std::vector<float> Recomputation::compute(size_t s, bool all, bool columns) {
  const Formula f = current(s);
  // These give single columns; all others are computed whole first.
  const bool some = columns && (std::holds_alternative<MatMul>(f.op) || std::holds_alternative<Add>(f.op) ||
                                std::holds_alternative<Scale>(f.op) || std::holds_alternative<SoftCap>(f.op) ||
                                (std::holds_alternative<Glu>(f.op) && !std::get<Glu>(f.op).interleaved));
  std::vector<float> out;
  if (f.left_out) {
    out = *get(f.inputs[0], all, some);
  } else if (std::holds_alternative<Embed>(f.op)) {
    out = embed(f, all);
  } else if (std::holds_alternative<Norm>(f.op)) {
    out = norm(f, all);
  } else if (std::holds_alternative<MatMul>(f.op)) {
    out = matmul(f, all, some);
  } else if (std::holds_alternative<Rope>(f.op)) {
    out = rope(f, all);
  } else if (std::holds_alternative<Attention>(f.op)) {
    out = attention(f, all);
  } else if (std::holds_alternative<Glu>(f.op)) {
    out = glu(f, all, some);
  } else if (std::holds_alternative<Route>(f.op)) {
    out = route(f, all);
  } else if (std::holds_alternative<ExpertMatMul>(f.op)) {
    out = experts(f, all);
  } else if (std::holds_alternative<Combine>(f.op)) {
    out = combine(f, all);
  } else if (const auto* add = std::get_if<Add>(&f.op)) {
    out = *get(f.inputs[0], all, some);
    const Values other = get(f.inputs[1], all, some);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(out[i] + static_cast<double>(add->scale) * (*other)[i]);
    }
  } else {
    out = *get(f.inputs[0], all, some);  // Scale and SoftCap are all in finish()
  }
  const size_t width = out.size() / std::max<size_t>(1, positions(all).size());
  finish(f, out, width, all);
  if (!columns || some) return out;
  std::vector<float> picked;
  for (size_t row = 0; row * width < out.size(); ++row) {
    for (const int c : sample_.columns) picked.push_back(out[row * width + index(c)]);
  }
  return picked;
}

// What is done to every element, whatever the operation.
void Recomputation::finish(const Formula& f, std::vector<float>& out, size_t width, bool all) const {
  const auto* scale = f.left_out ? nullptr : std::get_if<Scale>(&f.op);
  const auto* soft = f.left_out ? nullptr : std::get_if<SoftCap>(&f.op);
  if (!scale && !soft && f.factor == 1 && f.cap == 0 && f.beta == 0) return;
  const std::span<const int> rows = positions(all);
  for (size_t i = 0; i < out.size(); ++i) {
    double x = out[i] * f.factor;
    const int p = rows[i / width], position = p >= f.shift_from ? p + f.shift : p;
    const auto by_position = [position](double beta, int length) {
      return 1 + beta * std::log1p(std::floor(static_cast<double>(position) / std::max(1, length)));
    };
    if (scale) x *= scale->factor * f.learned * by_position(scale->beta, scale->length);
    if (f.beta != 0) x *= by_position(f.beta, f.length);
    if (soft && soft->cap > 0) x = soft->cap * std::tanh(x / soft->cap);
    if (f.cap > 0) x = f.cap * std::tanh(x / f.cap);
    out[i] = static_cast<float>(x);
  }
}

}  // namespace doppler
