#include "debug/attention_math.h"

#include <algorithm>
#include <cmath>

namespace doppler {
namespace {

// The weights of one query over keys first … last; `weights` is [rows].
void weigh(const AttentionRows& rows, const AttentionGuess& guess, int head, int p, std::vector<double>& weights) {
  const Attention& op = guess.op;
  const auto dim = static_cast<size_t>(op.head_dim);
  const size_t kv_head = static_cast<size_t>(head / std::max(1, op.heads / std::max(1, op.kv_heads)));
  const size_t kv_width = dim * static_cast<size_t>(op.kv_heads), q_width = dim * static_cast<size_t>(op.heads);
  const float* q = rows.q.data() + static_cast<size_t>(p) * q_width + static_cast<size_t>(head) * dim;
  const int last = std::min(rows.rows - 1, p + guess.newest);
  const int first = op.window > 0 ? std::max(0, p - op.window + 1) : 0;
  std::fill(weights.begin(), weights.end(), 0.0);
  const auto h = static_cast<size_t>(head);
  double highest = h < guess.sinks.size() ? guess.sinks[h] : -HUGE_VAL, total = 0;
  for (int j = first; j <= last; ++j) {
    const float* k = rows.k.data() + static_cast<size_t>(j) * kv_width + kv_head * dim;
    double score = 0;
    for (size_t i = 0; i < dim; ++i) score += static_cast<double>(q[i]) * k[i];
    score *= op.scale;
    if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
    weights[static_cast<size_t>(j)] = score;
    highest = std::max(highest, score);
  }
  if (h < guess.sinks.size()) total = std::exp(guess.sinks[h] - highest);
  for (int j = first; j <= last; ++j) {
    double& w = weights[static_cast<size_t>(j)];
    total += w = std::exp(w - highest);
  }
  for (int j = first; j <= last; ++j) weights[static_cast<size_t>(j)] /= total;
}

}  // namespace

std::vector<float> attend(const AttentionRows& rows, const AttentionGuess& guess) {
  const Attention& op = guess.op;
  const auto dim = static_cast<size_t>(op.head_dim);
  const size_t q_width = dim * static_cast<size_t>(op.heads), kv_width = dim * static_cast<size_t>(op.kv_heads);
  std::vector<float> out(static_cast<size_t>(rows.rows) * q_width, 0.f);
  std::vector<double> weights(static_cast<size_t>(rows.rows)), mixed(dim);
  for (int p = 0; p < rows.rows; ++p) {
    for (int head = 0; head < op.heads; ++head) {
      weigh(rows, guess, head, p, weights);
      const size_t kv_head = static_cast<size_t>(head / std::max(1, op.heads / std::max(1, op.kv_heads)));
      std::fill(mixed.begin(), mixed.end(), 0.0);
      for (size_t j = 0; j < weights.size(); ++j) {
        if (weights[j] == 0) continue;
        const float* v = rows.v.data() + j * kv_width + kv_head * dim;
        for (size_t i = 0; i < dim; ++i) mixed[i] += weights[j] * v[i];
      }
      float* to = out.data() + static_cast<size_t>(p) * q_width + static_cast<size_t>(head) * dim;
      std::copy(mixed.begin(), mixed.end(), to);
    }
  }
  return out;
}

std::vector<float> attention_pattern(const AttentionRows& rows, const AttentionGuess& guess, int head) {
  const auto n = static_cast<size_t>(rows.rows);
  std::vector<float> out(n * n, 0.f);
  std::vector<double> weights(n);
  for (int p = 0; p < rows.rows; ++p) {
    weigh(rows, guess, head, p, weights);
    std::copy(weights.begin(), weights.end(), out.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(p) * n));
  }
  return out;
}

std::vector<float> apply_rope(std::span<const float> x, int width, int head_dim, const RopeTable& table, double shift) {
  std::vector<float> out(x.begin(), x.end());
  const size_t half = table.inv_freq.size();
  for (size_t row = 0; row * static_cast<size_t>(width) < x.size(); ++row) {
    for (int head = 0; head < width / head_dim; ++head) {
      const size_t at = row * static_cast<size_t>(width) + static_cast<size_t>(head) * static_cast<size_t>(head_dim);
      for (size_t i = 0; i < half; ++i) {
        const double angle = (static_cast<double>(row) + shift) * table.inv_freq[i];
        const double c = std::cos(angle) * table.magnitude, s = std::sin(angle) * table.magnitude;
        const double a = x[at + i], b = x[at + half + i];
        out[at + i] = static_cast<float>(a * c - b * s);
        out[at + half + i] = static_cast<float>(b * c + a * s);
      }
    }
  }
  return out;
}

}  // namespace doppler
