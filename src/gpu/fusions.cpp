#include "gpu/fusions.h"

namespace doppler::gpu {
namespace {

// Reads a plan from front to back, a pattern at a time.
class Matcher {
 public:
  Matcher(const Plan& plan, const std::set<std::string>& alone) : plan_(plan), alone_(alone) {}

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
  // Null past the end, and for a step that no pattern may take.
  const Step* step(int i) const {
    if (i >= static_cast<int>(plan_.steps.size())) return nullptr;
    const Step& s = plan_.steps[static_cast<size_t>(i)];
    return alone_.count(s.name) > 0 ? nullptr : &s;
  }
  template <class Op>
  const Step* step_of(int i) const {
    const Step* s = step(i);
    return s && std::holds_alternative<Op>(s->op) ? s : nullptr;
  }
  int width(int value) const { return plan_.values[static_cast<size_t>(value)].width; }
  bool is_row_norm(const Step* s) const {
    return s && std::holds_alternative<Norm>(s->op) && std::get<Norm>(s->op).group == width(s->output);
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
      if (own && op.activation != Activation::kClampedSwiglu) g.glu = i++;
    } else if (step_of<SoftCap>(i) && g.matmuls.size() == 1 && step(i)->inputs[0] == step(g.matmuls[0])->output) {
      g.softcap = i++;
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
  const std::set<std::string>& alone_;
  int at_ = 0;
  FusedGroup last_;  // the group before at_
};

}  // namespace

std::vector<FusedGroup> fuse_for_decode(const Plan& plan, const std::set<std::string>& alone) {
  return Matcher(plan, alone).run();
}

StepGroups steps_of(const std::vector<FusedGroup>& groups) {
  StepGroups out;
  for (const FusedGroup& group : groups) out.push_back(group.steps);
  return out;
}

}  // namespace doppler::gpu
