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
      if (!project_norm(group) && !attention(group) && !merge(group)) group = {Fusion::kSingle, {at_}};
      at_ += static_cast<int>(group.steps.size());
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
    // Nothing else may want the norm's output, which is never stored.
    for (const Step& other : plan_.steps) {
      const int number = static_cast<int>(&other - plan_.steps.data());
      if (number >= at_ && number < i) continue;
      for (const int input : other.inputs) {
        if (input == normed) return false;
      }
    }
    for (int s = at_; s < i; ++s) g.steps.push_back(s);
    group = std::move(g);
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
