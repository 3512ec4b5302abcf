#include "debug/attention_math.h"

#include <algorithm>
#include <cmath>

namespace doppler {
namespace {

size_t kv_head_of(const AttentionGuess& guess, int head) {
  const int kv_heads = std::max(1, guess.op.kv_heads), group = std::max(1, guess.op.heads / kv_heads);
  switch (guess.map) {
    case HeadMap::kNeighbours: return static_cast<size_t>(head / group);
    case HeadMap::kModulo: return static_cast<size_t>(head % kv_heads);
    case HeadMap::kBackwards: return static_cast<size_t>(kv_heads - 1 - head / group);
  }
  return 0;
}

// The key or value that a query at p finds at position j; null where there is none.
const float* at(std::span<const float> x, const AttentionRows& rows, const AttentionGuess& guess, int p, int j,
                int shift, int head) {
  const StalePage& stale = guess.stale;
  if (p >= stale.since && j >= stale.begin && j < stale.begin + stale.size) j += stale.other - stale.begin;
  if (j - shift < 0 || j - shift >= rows.rows) return nullptr;
  const auto dim = static_cast<size_t>(guess.op.head_dim);
  const size_t width = dim * static_cast<size_t>(guess.op.kv_heads);
  return x.data() + static_cast<size_t>(j - shift) * width + kv_head_of(guess, head) * dim;
}

// The weights of query row `row` at position p over all keys; `weights` is [rows].
void weigh(const AttentionRows& rows, const AttentionGuess& guess, int head, size_t row, int p,
           std::vector<double>& weights) {
  const Attention& op = guess.op;
  const auto dim = static_cast<size_t>(op.head_dim);
  const float* q = rows.q.data() + row * dim * static_cast<size_t>(op.heads) + static_cast<size_t>(head) * dim;
  const int last = std::min(rows.rows - 1, p + op.ahead + guess.newest);
  const int first = op.window > 0 ? std::max(0, p - op.window + 1) : 0;
  std::fill(weights.begin(), weights.end(), 0.0);
  const auto h = static_cast<size_t>(head);
  const auto seen = [&](int j) { return j != guess.lost || j == p; };
  double highest = h < guess.sinks.size() ? guess.sinks[h] : -HUGE_VAL, total = 0;
  for (int j = first; j <= last; ++j) {
    if (!seen(j)) continue;
    const float* k = at(rows.k, rows, guess, p, j, guess.key_shift, head);
    double score = 0;
    for (size_t i = 0; k && i < dim; ++i) score += static_cast<double>(q[i]) * k[i];
    score *= op.scale;
    if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
    weights[static_cast<size_t>(j)] = score;
    highest = std::max(highest, score);
  }
  if (h < guess.sinks.size()) total = std::exp(guess.sinks[h] - highest);
  for (int j = first; j <= last; ++j) {
    double& w = weights[static_cast<size_t>(j)];
    w = seen(j) ? std::exp(w - highest) : 0;
    total += w;
  }
  for (int j = first; j <= last && total > 0; ++j) weights[static_cast<size_t>(j)] /= total;
}

}  // namespace

std::vector<float> attend(const AttentionRows& rows, const AttentionGuess& guess) {
  const Attention& op = guess.op;
  const auto dim = static_cast<size_t>(op.head_dim);
  const size_t q_width = dim * static_cast<size_t>(op.heads), queries = rows.q.size() / q_width;
  std::vector<float> out(queries * q_width, 0.f);
  std::vector<double> weights(static_cast<size_t>(rows.rows)), mixed(dim);
  for (size_t row = 0; row < queries; ++row) {
    const int p = rows.positions.empty() ? static_cast<int>(row) : rows.positions[row];
    for (int head = 0; head < op.heads; ++head) {
      weigh(rows, guess, head, row, p, weights);
      std::fill(mixed.begin(), mixed.end(), 0.0);
      for (size_t j = 0; j < weights.size(); ++j) {
        const float* v = at(rows.v, rows, guess, p, static_cast<int>(j), guess.value_shift, head);
        if (weights[j] == 0 || !v) continue;
        for (size_t i = 0; i < dim; ++i) mixed[i] += weights[j] * v[i];
      }
      float* to = out.data() + row * q_width + static_cast<size_t>(head) * dim;
      std::copy(mixed.begin(), mixed.end(), to);
    }
  }
  return out;
}

std::vector<float> attention_pattern(const AttentionRows& rows, const AttentionGuess& guess, int head) {
  const auto n = static_cast<size_t>(rows.rows);
  std::vector<float> out(n * n, 0.f);
  std::vector<double> weights(n);
  for (size_t p = 0; p < n; ++p) {
    weigh(rows, guess, head, p, static_cast<int>(p), weights);
    std::copy(weights.begin(), weights.end(), out.begin() + static_cast<std::ptrdiff_t>(p * n));
  }
  return out;
}

std::vector<float> apply_rope(std::span<const float> x, int width, int head_dim, const RopeTable& table,
                              const std::function<double(size_t row)>& position, bool neighbours) {
  std::vector<float> out(x.begin(), x.end());
  const size_t half = table.inv_freq.size();
  std::vector<double> cosines(half), sines(half);
  for (size_t row = 0; row * static_cast<size_t>(width) < x.size(); ++row) {
    for (size_t i = 0; i < half; ++i) {
      const double angle = position(row) * table.inv_freq[i];
      cosines[i] = std::cos(angle) * table.magnitude;
      sines[i] = std::sin(angle) * table.magnitude;
    }
    for (int head = 0; head < width / head_dim; ++head) {
      const size_t start = row * static_cast<size_t>(width) + static_cast<size_t>(head) * static_cast<size_t>(head_dim);
      for (size_t i = 0; i < half; ++i) {
        const size_t low = start + (neighbours ? 2 * i : i), high = neighbours ? low + 1 : low + half;
        const double a = x[low], b = x[high];
        out[low] = static_cast<float>(a * cosines[i] - b * sines[i]);
        out[high] = static_cast<float>(b * cosines[i] + a * sines[i]);
      }
    }
  }
  return out;
}

}  // namespace doppler
