#include "model/lifetimes.h"

#include <algorithm>

namespace doppler {

StepGroups single_steps(const Plan& plan) {
  StepGroups groups;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) groups.push_back({i});
  return groups;
}

BufferPlan share_buffers(const Plan& plan, const StepGroups& groups) {
  const size_t values = plan.values.size();
  std::vector<int> born(values, -1), dies(values, -1);  // by group
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    for (const int s : groups[static_cast<size_t>(g)]) {
      const Step& step = plan.steps[static_cast<size_t>(s)];
      born[static_cast<size_t>(step.output)] = g;
      for (const int input : step.inputs) dies[static_cast<size_t>(input)] = g;
    }
  }
  dies[static_cast<size_t>(plan.steps.back().output)] = static_cast<int>(groups.size());

  BufferPlan result{std::vector<int>(values, -1), {}};
  std::vector<int> free_from;  // by buffer: the first group that may make a new value in it
  for (int g = 0; g < static_cast<int>(groups.size()); ++g) {
    for (const int s : groups[static_cast<size_t>(g)]) {
      const size_t value = static_cast<size_t>(plan.steps[static_cast<size_t>(s)].output);
      if (dies[value] <= g) continue;  // used inside this group only
      const int width = plan.values[value].width;
      // Best fit: the narrowest free buffer that holds it, else the widest free one, which grows.
      int best = -1;
      for (int b = 0; b < static_cast<int>(free_from.size()); ++b) {
        if (free_from[static_cast<size_t>(b)] > g) continue;
        const int has = result.widths[static_cast<size_t>(b)];
        const int had = best < 0 ? 0 : result.widths[static_cast<size_t>(best)];
        if (best < 0 || (has >= width ? (had < width || has < had) : (had < width && has > had))) best = b;
      }
      if (best < 0) {
        best = static_cast<int>(free_from.size());
        free_from.push_back(0);
        result.widths.push_back(0);
      }
      result.buffer_of[value] = best;
      result.widths[static_cast<size_t>(best)] = std::max(result.widths[static_cast<size_t>(best)], width);
      free_from[static_cast<size_t>(best)] = dies[value] + 1;
    }
  }
  return result;
}

}  // namespace doppler
