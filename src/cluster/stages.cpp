#include "cluster/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"

namespace doppler {
namespace {

// The first step of a layer; of the one behind the last layer the end of all steps.
size_t first_step(const Plan& plan, int layer) {
  if (layer == 0) return 0;
  const auto of_layer = [&](const Step& step) { return step.layer == layer; };
  return static_cast<size_t>(std::find_if(plan.steps.begin(), plan.steps.end(), of_layer) - plan.steps.begin());
}

// Values made before a step and read by it or later.
std::set<int> crossing(const Plan& plan, size_t at) {
  std::vector<bool> made(plan.values.size(), false);
  for (size_t s = 0; s < at; ++s) made[static_cast<size_t>(plan.steps[s].output)] = true;
  std::set<int> values;
  for (size_t s = at; s < plan.steps.size(); ++s) {
    for (const int input : plan.steps[s].inputs) {
      if (made[static_cast<size_t>(input)]) values.insert(input);
    }
  }
  return values;
}

// Layers whose cache is read or written by the steps [begin, end).
std::set<int> caches(const Plan& plan, size_t begin, size_t end) {
  std::set<int> layers;
  for (size_t s = begin; s < end; ++s) {
    if (const auto* op = std::get_if<Attention>(&plan.steps[s].op)) layers.insert(op->layer);
  }
  return layers;
}

}  // namespace

int layer_count(const Plan& plan) {
  int count = 0;
  for (const Step& step : plan.steps) count = std::max(count, step.layer + 1);
  return count;
}

std::vector<int> possible_cuts(const Plan& plan) {
  std::vector<int> cuts;
  for (int layer = 1; layer < layer_count(plan); ++layer) {
    const size_t at = first_step(plan, layer);
    const std::set<int> before = caches(plan, 0, at), behind = caches(plan, at, plan.steps.size());
    const bool shared = std::any_of(behind.begin(), behind.end(), [&](int each) { return before.count(each) > 0; });
    if (!shared && crossing(plan, at) == std::set<int>{plan.steps[at - 1].output}) cuts.push_back(layer);
  }
  return cuts;
}

Plan slice(const Plan& plan, int begin, int end) {
  const size_t first = first_step(plan, begin);
  const size_t last = end == layer_count(plan) ? plan.steps.size() : first_step(plan, end);
  Plan stage;
  stage.values = plan.values;
  stage.steps.assign(plan.steps.begin() + static_cast<std::ptrdiff_t>(first),
                     plan.steps.begin() + static_cast<std::ptrdiff_t>(last));
  if (begin > 0) stage.input = plan.steps[first - 1].output;
  return stage;
}

Weights weights_of(const Plan& plan, const Weights& weights) {
  Weights used;
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) used.add(use.slot, weights.at(use.slot));
  }
  return used;
}

uint64_t weight_bytes(const Plan& plan, const Weights& weights) {
  const Weights used = weights_of(plan, weights);
  uint64_t bytes = 0;
  for (const auto& [slot, tensor] : used.all()) bytes += tensor.byte_size();
  return bytes;
}

std::vector<int> divide(const std::vector<LayerNeed>& layers, const std::vector<int>& cuts,
                        const std::vector<RankPower>& ranks) {
  const size_t parts = cuts.size() + 1;
  if (parts < ranks.size()) {
    fail({.code = ErrorCode::kUsage,
          .what = "the model cannot be divided among so many ranks",
          .where = "mpirun -n",
          .expected = fmt::format("{} ranks at most", parts),
          .got = std::to_string(ranks.size())});
  }
  std::vector<int> borders{0};
  borders.insert(borders.end(), cuts.begin(), cuts.end());
  borders.push_back(static_cast<int>(layers.size()));
  // best[p]: the time of the slowest stage where the ranks up to here end before border p; came[r][p]: where the last
  // of them begins.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> best(parts + 1, kNever);
  std::vector<std::vector<size_t>> came(ranks.size(), std::vector<size_t>(parts + 1));
  best[0] = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<double> next(parts + 1, kNever);
    for (size_t begin = 0; begin < parts; ++begin) {
      double cost = 0;
      uint64_t memory = 0;
      for (size_t end = begin + 1; end <= parts; ++end) {
        for (int layer = borders[end - 1]; layer < borders[end]; ++layer) {
          cost += layers[static_cast<size_t>(layer)].cost;
          memory += layers[static_cast<size_t>(layer)].memory;
        }
        if (memory > ranks[r].memory) break;
        const double slowest = std::max(best[begin], cost / ranks[r].speed);
        if (slowest < next[end]) next[end] = slowest, came[r][end] = begin;
      }
    }
    best = std::move(next);
  }
  if (best[parts] == kNever) {
    uint64_t need = 0, have = 0;
    for (const LayerNeed& layer : layers) need += layer.memory;
    for (const RankPower& rank : ranks) have += std::min<uint64_t>(rank.memory, uint64_t{1} << 50);
    fail({.code = ErrorCode::kMemory,
          .what = "the model does not fit in the memory of all ranks",
          .expected = fmt::format("{} MiB, in pieces of whole layers", need >> 20),
          .got = fmt::format("{} MiB", have >> 20),
          .todo = "Use more ranks, a smaller --context or --cache-memory"});
  }
  std::vector<int> result{static_cast<int>(layers.size())};
  for (size_t r = ranks.size(), at = parts; r > 0; --r) {
    at = came[r - 1][at];
    result.insert(result.begin(), borders[at]);
  }
  return result;
}

}  // namespace doppler
