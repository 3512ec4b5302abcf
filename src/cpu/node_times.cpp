#include "cpu/node_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/timeline.h"

namespace doppler::cpu {
namespace {

// The plan's steps that a node computes, the last one being that whose output is whole behind it.
std::vector<int> steps_of(const Node& node) {
  std::vector<int> steps;
  for (const Op& op : node.ops) {
    if (op.step >= 0 && std::find(steps.begin(), steps.end(), op.step) == steps.end()) steps.push_back(op.step);
  }
  if (node.finished_step >= 0) {
    std::erase(steps, node.finished_step);
    steps.push_back(node.finished_step);
  }
  return steps;
}

}  // namespace

NodeTimes::NodeTimes(const Program& program, const Plan& plan) {
  for (const Node& node : program.nodes) {
    Json names = Json::array();
    int layer = -1;
    for (const int s : steps_of(node)) {
      const Step& step = plan.steps[static_cast<size_t>(s)];
      names.push_back(step.name);
      layer = step.layer;
    }
    const std::string name = names.empty() ? "angles" : names.back().get<std::string>();
    const Json arguments = {{"steps", names}};
    events_.push_back(timeline::event(name, "step", timeline::Track::kEngine, arguments.dump()));
    layers_.push_back(layer);
    while (static_cast<int>(layer_events_.size()) <= layer)
      layer_events_.push_back(
          timeline::event(fmt::format("layer {}", layer_events_.size()), "layer", timeline::Track::kEngine));
  }
  taken_.reserve(program.nodes.size());
}

void NodeTimes::start() { last_ = timeline::now(); }

void NodeTimes::end_of(size_t node) {
  const uint64_t now = timeline::now();
  taken_.push_back({node, {last_, now}});
  last_ = now;
}

void NodeTimes::write() {
  for (size_t i = 0; i < taken_.size();) {
    const int layer = layers_[taken_[i].first];
    const size_t first = i;
    for (; i < taken_.size() && layers_[taken_[i].first] == layer; ++i)
      timeline::add(events_[taken_[i].first], taken_[i].second.begin, taken_[i].second.end);
    if (layer >= 0)
      timeline::add(layer_events_[static_cast<size_t>(layer)], taken_[first].second.begin, taken_[i - 1].second.end);
  }
  taken_.clear();
}

}  // namespace doppler::cpu
