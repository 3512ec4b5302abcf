#include <algorithm>
#include <numeric>

#include "ref/ops.h"

namespace doppler::ref {

void route(In scores, int k, Out out) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  const size_t chosen = static_cast<size_t>(k);
  for (size_t i = 0; i < chosen; ++i) {
    out[i] = static_cast<float>(order[i]);
    out[chosen + i] = scores[static_cast<size_t>(order[i])];
  }
  softmax(out.subspan(chosen, chosen), out.subspan(chosen, chosen));
}

}  // namespace doppler::ref
