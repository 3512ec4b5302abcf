#include <algorithm>
#include <cmath>

#include "ref/ops.h"

namespace doppler::ref {

void attention(const Attention& op, In q, In keys, In values, In sinks, int first, Out out) {
  const size_t dim = static_cast<size_t>(op.head_dim);
  const size_t q_width = static_cast<size_t>(op.heads) * dim, kv_width = static_cast<size_t>(op.kv_heads) * dim;
  const int n = static_cast<int>(q.size() / q_width);
  std::vector<double> scores, mixed(dim);
  for (int t = 0; t < n; ++t) {
    const int position = first + t;
    const int oldest = op.window > 0 ? std::max(0, position - op.window + 1) : 0;
    for (int h = 0; h < op.heads; ++h) {
      const float* query = q.data() + static_cast<size_t>(t) * q_width + static_cast<size_t>(h) * dim;
      const size_t kv_head = static_cast<size_t>(h / (op.heads / op.kv_heads)) * dim;
      const auto kv = [&](In cache, int j) { return cache.data() + static_cast<size_t>(j) * kv_width + kv_head; };

      scores.clear();
      double highest = sinks.empty() ? -INFINITY : sinks[static_cast<size_t>(h)];
      for (int j = oldest; j <= position; ++j) {
        double score = 0;
        for (size_t i = 0; i < dim; ++i) score += static_cast<double>(query[i]) * kv(keys, j)[i];
        score *= op.scale;
        if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
        scores.push_back(score);
        highest = std::max(highest, score);
      }
      double total = sinks.empty() ? 0 : std::exp(sinks[static_cast<size_t>(h)] - highest);
      std::fill(mixed.begin(), mixed.end(), 0.0);
      for (int j = oldest; j <= position; ++j) {
        const double weight = std::exp(scores[static_cast<size_t>(j - oldest)] - highest);
        total += weight;
        for (size_t i = 0; i < dim; ++i) mixed[i] += weight * kv(values, j)[i];
      }
      float* to = out.data() + static_cast<size_t>(t) * q_width + static_cast<size_t>(h) * dim;
      for (size_t i = 0; i < dim; ++i) to[i] = static_cast<float>(mixed[i] / total);
    }
  }
}

}  // namespace doppler::ref
