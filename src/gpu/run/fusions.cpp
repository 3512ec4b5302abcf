#include "gpu/run/fusions.h"

#include <algorithm>
#include <set>

namespace doppler::gpu {
namespace {

// Reads a plan from front to back, a pattern at a time.
class Matcher {
 public:
  explicit Matcher(const Plan& plan) : plan_(plan) {}

  std::vector<FusedGroup> run() {
    std::vector<FusedGroup> groups;
    while (at_ < static_cast<int>(plan_.steps.size())) {
      FusedGroup group;
      if (!project_norm(group) && !attention(group) && !merge(group) && !experts_up(group) && !experts_down(group)) {
        group = {Fusion::kSingle, {at_}};
      }
      at_ += static_cast<int>(group.steps.size());
      last_ = group;
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  // Null past the end.
  const Step* step(int i) const {
    if (i >= static_cast<int>(plan_.steps.size())) return nullptr;
    return &plan_.steps[static_cast<size_t>(i)];
  }
  template <class Op>
  const Step* step_of(int i) const {
    const Step* s = step(i);
    return s && std::holds_alternative<Op>(s->op) ? s : nullptr;
  }
  int width(int value) const { return plan_.values[static_cast<size_t>(value)].width; }
  bool is_row_norm(const Step* s) const {
    return s && std::holds_alternative<Norm>(s->op) && std::get<Norm>(s->op).group == width(s->output) &&
           !s->weights.empty();
  }

  bool project_norm(FusedGroup& group) const {
    int i = at_;
    FusedGroup g{Fusion::kProjectNorm, {}};
    if (is_row_norm(step(i)) && step_of<Add>(i + 1) && step(i + 1)->inputs[1] == step(i)->output) g.branch_norm = i++;
    if (step_of<Add>(i)) g.add = i++;
    if (!is_row_norm(step(i))) return false;
    if (g.add >= 0 && step(i)->inputs[0] != step(g.add)->output) return false;
    const int normed = step(i)->output;
    g.norm = i++;
    while (step_of<MatMul>(i) && step(i)->inputs[0] == normed) g.matmuls.push_back(i++);
    if (g.matmuls.empty()) return false;
    if (const Step* glu = step_of<Glu>(i)) {
      const auto& op = std::get<Glu>(glu->op);
      const bool own = g.matmuls.size() == 2 &&
                       glu->inputs == std::vector<int>{step(g.matmuls[0])->output, step(g.matmuls[1])->output};
      if (own && (op.activation == Activation::kGeluTanh || op.activation == Activation::kSilu)) g.glu = i++;
    } else if (g.matmuls.size() == 1) {
      if (step_of<Scale>(i) && std::get<Scale>(step(i)->op).beta == 0 && step(i)->inputs[0] == step(i - 1)->output &&
          step(i - 1)->weights.size() == 1 && step(i)->weights.empty()) {
        g.scale = i++;
      }
      if (step_of<SoftCap>(i) && step(i)->inputs[0] == step(i - 1)->output) g.softcap = i++;
    }
    // Nothing else may want the norm's output, which is never stored; experts make it anew from what it is the norm of.
    const int experts = g.matmuls.size() == 1 && is_experts_up(i, g.norm) ? i + 1 : -1;
    for (const Step& other : plan_.steps) {
      const int number = static_cast<int>(&other - plan_.steps.data());
      if ((number >= at_ && number < i) || number == experts) continue;
      for (const int input : other.inputs) {
        if (input == normed) return false;
      }
    }
    for (int s = at_; s < i; ++s) g.steps.push_back(s);
    group = std::move(g);
    return true;
  }

  // Route, gate and up, activation from step i on, of the norm of step `norm`, whose input outlives them?
  bool is_experts_up(int i, int norm) const {
    const Step *route = step_of<Route>(i), *up = step_of<ExpertMatMul>(i + 1), *glu = step_of<Glu>(i + 2);
    if (!route || !up || !glu || up->inputs != std::vector<int>{step(norm)->output, route->output}) return false;
    if (std::get<ExpertMatMul>(up->op).per_expert || !std::get<Glu>(glu->op).interleaved) return false;
    if (glu->inputs != std::vector<int>{up->output} || !is_experts_down(i + 3, route->output, glu->output))
      return false;
    for (size_t s = static_cast<size_t>(i) + 3; s < plan_.steps.size(); ++s) {
      for (const int input : plan_.steps[s].inputs) {
        if (input == step(norm)->inputs[0]) return true;
      }
    }
    return false;
  }

  // Down of what gate and up left and nobody else wants, and the sum of it.
  bool is_experts_down(int i, int route, int x) const {
    const Step *down = step_of<ExpertMatMul>(i), *sum = step_of<Combine>(i + 1);
    return down && sum && std::get<ExpertMatMul>(down->op).per_expert && down->inputs == std::vector<int>{x, route} &&
           sum->inputs == std::vector<int>{down->output, route};
  }

  bool experts_up(FusedGroup& group) const {
    if (last_.fusion != Fusion::kProjectNorm || last_.matmuls.size() != 1 || !is_experts_up(at_, last_.norm))
      return false;
    if (step(at_)->inputs[0] != step(last_.matmuls[0])->output) return false;
    group = {Fusion::kExpertsUp, {at_, at_ + 1, at_ + 2}};
    group.norm = last_.norm;
    return true;
  }

  bool experts_down(FusedGroup& group) const {
    if (last_.fusion != Fusion::kExpertsUp) return false;
    group = {Fusion::kExpertsDown, {at_, at_ + 1}};  // is_experts_up() has seen them
    return true;
  }

  bool attention(FusedGroup& group) const {
    int i = at_;
    if (step_of<Norm>(i) && step_of<Norm>(i + 1)) i += 2;
    if (!step_of<Rope>(i) || !step_of<Rope>(i + 1) || !step_of<Attention>(i + 2)) return false;
    const Step* attention = step(i + 2);
    if (attention->inputs[0] != step(i)->output || attention->inputs[1] != step(i + 1)->output) return false;
    if (i != at_ && (step(i)->inputs[0] != step(at_)->output || step(i + 1)->inputs[0] != step(at_ + 1)->output))
      return false;
    // The kernels know norms of heads, and heads that turn as a whole or not at all.
    const int head = std::get<Attention>(attention->op).head_dim;
    if (i != at_ && (std::get<Norm>(step(at_)->op).group != head || std::get<Norm>(step(at_ + 1)->op).group != head))
      return false;
    if (const int dims = std::get<Rope>(step(i)->op).dims; dims != 0 && dims != head) return false;
    group = {Fusion::kAttention, {}};
    for (int s = at_; s < i + 3; ++s) group.steps.push_back(s);
    return true;
  }

  bool merge(FusedGroup& group) const {
    const Step* matmul = step_of<MatMul>(at_);
    const Step* before = at_ > 0 ? step_of<Attention>(at_ - 1) : nullptr;
    if (!matmul || !before || matmul->inputs[0] != before->output) return false;
    group = {Fusion::kMerge, {at_}};
    return true;
  }

  const Plan& plan_;
  int at_ = 0;
  FusedGroup last_;  // the group before at_
};

class TapPlanner {
 public:
  TapPlanner(const Plan& plan, const std::vector<FusedGroup>& groups)
      : plan_(plan), groups_(groups), group_of_(plan.steps.size()), maker_(plan.values.size(), -1) {
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const int s : groups[g].steps) group_of_[static_cast<size_t>(s)] = static_cast<int>(g);
    }
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      maker_[static_cast<size_t>(plan.steps[s].output)] = static_cast<int>(s);
    }
  }

  TapSource source_of(int s) const {
    const Step& step = plan_.steps[static_cast<size_t>(s)];
    const int number = group_of_[static_cast<size_t>(s)];
    const FusedGroup& group = groups_[static_cast<size_t>(number)];
    const bool projects = group.fusion == Fusion::kProjectNorm;
    TapSource source{s, TapSource::Kind::kValue, step.output};
    if (projects && (s == group.norm || s == group.branch_norm)) return derived(s, &TapSource::norm);
    if (projects && std::count(group.matmuls.begin(), group.matmuls.end(), s) > 0) {
      const bool hidden = group.glu >= 0 || group.softcap >= 0 || group.scale >= 0;
      if (!hidden && group.matmuls.size() == 1) return source;
      source.kind = hidden ? TapSource::Kind::kRecomputed : TapSource::Kind::kQkv;
      source.of = hidden ? number : step.layer;
      for (const int before : group.matmuls) {
        if (before < s) source.from += width_of(before);
      }
    } else if (group.fusion == Fusion::kAttention) {
      if (std::holds_alternative<Norm>(step.op)) return derived(s, &TapSource::norm);
      if (std::holds_alternative<Rope>(step.op)) return derived(s, &TapSource::rope);
      source.kind = TapSource::Kind::kSplits;
      source.of = step.layer;
    }
    return source;
  }

  // What experts make on the way is not stored as f32, or not at all.
  bool hidden_in_experts(int s) const {
    const FusedGroup& group = groups_[static_cast<size_t>(group_of_[static_cast<size_t>(s)])];
    if (group.fusion == Fusion::kExpertsUp) return s != group.steps.front();
    return group.fusion == Fusion::kExpertsDown && s != group.steps.back();
  }

  // The step and those before it whose results have to be made for it.
  void add_recomputed(int s, std::set<int>& steps) const {
    const auto& op = plan_.steps[static_cast<size_t>(s)].op;
    if (!hidden_in_experts(s) && !std::holds_alternative<Norm>(op)) return;
    steps.insert(s);
    for (const int input : plan_.steps[static_cast<size_t>(s)].inputs) {
      if (const int maker = maker_[static_cast<size_t>(input)]; maker >= 0) add_recomputed(maker, steps);
    }
  }

 private:
  int width_of(int s) const {
    return plan_.values[static_cast<size_t>(plan_.steps[static_cast<size_t>(s)].output)].width;
  }
  TapSource derived(int s, int TapSource::*what) const {
    const int input = maker_[static_cast<size_t>(plan_.steps[static_cast<size_t>(s)].inputs[0])];
    TapSource source = source_of(input);
    source.step = s;
    source.*what = s;
    return source;
  }

  const Plan& plan_;
  const std::vector<FusedGroup>& groups_;
  std::vector<int> group_of_, maker_;  // by step; by value
};

}  // namespace

std::vector<FusedGroup> fuse_for_decode(const Plan& plan) { return Matcher(plan).run(); }

TapPlan plan_taps(const Plan& plan, const std::vector<FusedGroup>& groups,
                  const std::function<bool(const Step&)>& wanted) {
  const TapPlanner planner(plan, groups);
  TapPlan tap_plan;
  std::set<int> recomputed;
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    if (!wanted(plan.steps[static_cast<size_t>(s)])) continue;
    tap_plan.sources.push_back(planner.source_of(s));
    if (planner.hidden_in_experts(s)) planner.add_recomputed(s, recomputed);
  }
  tap_plan.recomputed.assign(recomputed.begin(), recomputed.end());
  return tap_plan;
}

StepGroups steps_of(const std::vector<FusedGroup>& groups) {
  StepGroups out;
  for (const FusedGroup& group : groups) out.push_back(group.steps);
  return out;
}

}  // namespace doppler::gpu
