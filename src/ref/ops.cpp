#include "ref/ops.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "format/decode.h"

namespace doppler::ref {

std::vector<float> decode(const Tensor& tensor) {
  const size_t rows = static_cast<size_t>(tensor.rows()), cols = static_cast<size_t>(tensor.cols());
  std::vector<float> values(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(tensor.dtype, tensor.row(static_cast<int64_t>(r)), values.data() + r * cols, cols);
  }
  return values;
}

void embed(const Tensor& matrix, std::span<const int32_t> tokens, float scale, Out out) {
  const size_t width = static_cast<size_t>(matrix.cols());
  for (size_t t = 0; t < tokens.size(); ++t) {
    float* row = out.data() + t * width;
    decode_row(matrix.dtype, matrix.row(tokens[t]), row, width);
    for (size_t i = 0; i < width; ++i) row[i] *= scale;
  }
}

void norm(In x, In w, float eps, float offset, Out out) {
  const size_t width = w.size();
  for (size_t start = 0; start < x.size(); start += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += static_cast<double>(x[start + i]) * x[start + i];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i) {
      out[start + i] = static_cast<float>(x[start + i] * inverse * (static_cast<double>(offset) + w[i]));
    }
  }
}

void matmul(In x, const Tensor& w, In bias, Out out) {
  const size_t rows = static_cast<size_t>(w.rows()), cols = static_cast<size_t>(w.cols()), n = x.size() / cols;
  std::vector<float> row(cols);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(w.dtype, w.row(static_cast<int64_t>(r)), row.data(), cols);
    for (size_t t = 0; t < n; ++t) {
      double sum = bias.empty() ? 0 : bias[r];
      for (size_t i = 0; i < cols; ++i) sum += static_cast<double>(x[t * cols + i]) * row[i];
      out[t * rows + r] = static_cast<float>(sum);
    }
  }
}

void add_lora(const LoraPair& pair, float scale, In x, Out out) {
  const size_t rank = static_cast<size_t>(pair.rank), in = static_cast<size_t>(pair.in),
               width = static_cast<size_t>(pair.out);
  std::vector<double> thin(rank);
  for (size_t t = 0; t < x.size() / in; ++t) {
    for (size_t r = 0; r < rank; ++r) {
      thin[r] = 0;
      for (size_t i = 0; i < in; ++i) thin[r] += static_cast<double>(pair.a[r * in + i]) * x[t * in + i];
    }
    for (size_t o = 0; o < width; ++o) {
      double sum = 0;
      for (size_t r = 0; r < rank; ++r) sum += thin[r] * pair.b[r * width + o];
      float& value = out[t * width + o];
      value = static_cast<float>(value + static_cast<double>(scale) * pair.scale * sum);
    }
  }
}

void rope(In x, int width, int head_dim, const RopeTable& table, int first, Out out) {
  const int half = static_cast<int>(table.inv_freq.size());
  const int n = static_cast<int>(x.size()) / width;
  std::copy(x.begin(), x.end(), out.begin());
  for (int t = 0; t < n; ++t) {
    for (int head = 0; head < width; head += head_dim) {
      const size_t start = static_cast<size_t>(t) * static_cast<size_t>(width) + static_cast<size_t>(head);
      for (int i = 0; i < half; ++i) {
        const double angle = static_cast<double>(first + t) * table.inv_freq[static_cast<size_t>(i)];
        const double c = std::cos(angle) * table.magnitude, s = std::sin(angle) * table.magnitude;
        const size_t low = start + static_cast<size_t>(i), high = low + static_cast<size_t>(half);
        const double a = x[low], b = x[high];
        out[low] = static_cast<float>(a * c - b * s);
        out[high] = static_cast<float>(b * c + a * s);
      }
    }
  }
}

void attention(const Attention& op, In q, In keys, In values, In sinks, int first, Out out) {
  const size_t dim = static_cast<size_t>(op.head_dim);
  const size_t q_width = static_cast<size_t>(op.heads) * dim, kv_width = static_cast<size_t>(op.kv_heads) * dim;
  const int n = static_cast<int>(q.size() / q_width);
  std::vector<double> scores, mixed(dim);
  for (int t = 0; t < n; ++t) {
    const int position = first + t;
    const int oldest = op.window > 0 ? std::max(0, position - op.window + 1) : 0;
    const int newest = std::min(position + op.ahead, first + n - 1);
    for (int h = 0; h < op.heads; ++h) {
      const float* query = q.data() + static_cast<size_t>(t) * q_width + static_cast<size_t>(h) * dim;
      const size_t kv_head = static_cast<size_t>(h / (op.heads / op.kv_heads)) * dim;
      const auto kv = [&](In cache, int j) { return cache.data() + static_cast<size_t>(j) * kv_width + kv_head; };

      scores.clear();
      double highest = sinks.empty() ? -INFINITY : sinks[static_cast<size_t>(h)];
      for (int j = oldest; j <= newest; ++j) {
        double score = 0;
        for (size_t i = 0; i < dim; ++i) score += static_cast<double>(query[i]) * kv(keys, j)[i];
        score *= op.scale;
        if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
        scores.push_back(score);
        highest = std::max(highest, score);
      }
      double total = sinks.empty() ? 0 : std::exp(sinks[static_cast<size_t>(h)] - highest);
      std::fill(mixed.begin(), mixed.end(), 0.0);
      for (int j = oldest; j <= newest; ++j) {
        const double weight = std::exp(scores[static_cast<size_t>(j - oldest)] - highest);
        total += weight;
        for (size_t i = 0; i < dim; ++i) mixed[i] += weight * kv(values, j)[i];
      }
      float* to = out.data() + static_cast<size_t>(t) * q_width + static_cast<size_t>(h) * dim;
      for (size_t i = 0; i < dim; ++i) to[i] = static_cast<float>(mixed[i] / total);
    }
  }
}

float glu(const Glu& op, float gate, float up) {
  const double g = gate, u = up;
  switch (op.activation) {
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      return static_cast<float>(0.5 * g * (1 + std::tanh(inner)) * u);
    }
    case Activation::kSilu: return static_cast<float>(g / (1 + std::exp(-g)) * u);
    case Activation::kClampedSwiglu: {
      const double limit = op.limit;
      const double low = g > limit ? limit : g, linear = std::clamp(u, -limit, limit);
      return static_cast<float>(low / (1 + std::exp(-op.alpha * low)) * (linear + 1));
    }
    case Activation::kSigmoid: return static_cast<float>(u / (1 + std::exp(-g)));
  }
  return NAN;
}

void glu(const Glu& op, In gate, In up, Out out) {
  const size_t columns = op.one_gate ? out.size() / gate.size() : 1;
  for (size_t i = 0; i < out.size(); ++i) out[i] = glu(op, gate[i / columns], up[i]);
}

void glu_interleaved(const Glu& op, In gate_up, Out out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = glu(op, gate_up[2 * i], gate_up[2 * i + 1]);
}

void add(In a, In b, float scale, Out out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(a[i] + static_cast<double>(scale) * b[i]);
  }
}

void scale(const Scale& op, In x, int width, int first, Out out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const int position = first + static_cast<int>(i / static_cast<size_t>(width));
    const double turns = std::floor(static_cast<double>(position) / op.length);
    out[i] = static_cast<float>(x[i] * op.factor * (1 + op.beta * std::log1p(turns)));
  }
}

void short_conv(const ShortConv& op, In x, In w, Out state, Out out) {
  const size_t channels = static_cast<size_t>(op.channels), kernel = static_cast<size_t>(op.kernel);
  const size_t width = op.gated ? 3 * channels : channels;
  for (size_t t = 0; t * width < x.size(); ++t) {
    const float* row = x.data() + t * width;
    for (size_t c = 0; c < channels; ++c) {
      const auto now = op.gated ? static_cast<float>(static_cast<double>(row[c]) * row[2 * channels + c]) : row[c];
      double sum = static_cast<double>(w[c * kernel + kernel - 1]) * now;
      for (size_t i = 0; i + 1 < kernel; ++i) sum += static_cast<double>(w[c * kernel + i]) * state[i * channels + c];
      for (size_t i = 0; i + 2 < kernel; ++i) state[i * channels + c] = state[(i + 1) * channels + c];
      state[(kernel - 2) * channels + c] = now;
      if (op.silu) sum /= 1 + std::exp(-sum);
      out[t * channels + c] = static_cast<float>(op.gated ? row[channels + c] * sum : sum);
    }
  }
}

void delta_net(const DeltaNet& op, In qkv, In b, In a, In decay, In dt, Out state, Out out) {
  const size_t heads = static_cast<size_t>(op.value_heads), share = heads / static_cast<size_t>(op.key_heads);
  const size_t dk = static_cast<size_t>(op.key_dim), dv = static_cast<size_t>(op.value_dim);
  const size_t keys = dk * static_cast<size_t>(op.key_heads), width = 2 * keys + heads * dv;
  for (size_t t = 0; t * width < qkv.size(); ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const float* q = qkv.data() + t * width + h / share * dk;
      const float *k = q + keys, *v = qkv.data() + t * width + 2 * keys + h * dv;
      double q_squares = 0, k_squares = 0;
      for (size_t i = 0; i < dk; ++i) {
        q_squares += static_cast<double>(q[i]) * q[i];
        k_squares += static_cast<double>(k[i]) * k[i];
      }
      const double q_scale = 1 / std::sqrt((q_squares + op.eps) * static_cast<double>(dk));
      const double k_scale = 1 / std::sqrt(k_squares + op.eps);
      const double beta = 1 / (1 + std::exp(-static_cast<double>(b[t * heads + h])));
      const double step = static_cast<double>(a[t * heads + h]) + dt[h];
      const double softplus = std::max(step, 0.0) + std::log1p(std::exp(-std::abs(step)));
      const double kept = std::exp(-std::exp(static_cast<double>(decay[h])) * softplus);
      float* s = state.data() + h * dk * dv;
      for (size_t j = 0; j < dv; ++j) {
        double known = 0, read = 0;
        for (size_t i = 0; i < dk; ++i) known += k[i] * k_scale * kept * s[i * dv + j];
        const double change = beta * (v[j] - known);
        for (size_t i = 0; i < dk; ++i) {
          const double now = kept * s[i * dv + j] + k[i] * k_scale * change;
          read += q[i] * q_scale * now;
          s[i * dv + j] = static_cast<float>(now);
        }
        out[t * heads * dv + h * dv + j] = static_cast<float>(read);
      }
    }
  }
}

void part(const Part& op, In x, Out out) {
  const size_t width = static_cast<size_t>(op.width), parts = static_cast<size_t>(op.parts);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = x[(i / width * parts + static_cast<size_t>(op.index)) * width + i % width];
}

void softcap(In x, float cap, Out out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
  }
}

void softmax(In x, Out out) {
  const double highest = *std::max_element(x.begin(), x.end());
  double total = 0;
  for (const float value : x) total += std::exp(value - highest);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(std::exp(x[i] - highest) / total);
}

void route(const Route& op, In scores, In scale, Out out) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)]; });
  const size_t chosen = static_cast<size_t>(op.k);
  for (size_t i = 0; i < chosen; ++i) {
    out[i] = static_cast<float>(order[i]);
    out[chosen + i] = scores[static_cast<size_t>(order[i])];
  }
  if (op.over_all) {
    std::vector<float> all(scores.size());
    softmax(scores, all);
    for (size_t i = 0; i < chosen; ++i) out[chosen + i] = all[static_cast<size_t>(order[i])];
  } else {
    softmax(out.subspan(chosen, chosen), out.subspan(chosen, chosen));
  }
  for (size_t i = 0; !scale.empty() && i < chosen; ++i) {
    out[chosen + i] = static_cast<float>(static_cast<double>(out[chosen + i]) * scale[static_cast<size_t>(order[i])]);
  }
}

void expert_matmul(const ExpertMatMul& op, In x, const Tensor& w, In bias, In route, Out out) {
  const size_t rows = static_cast<size_t>(w.shape[1]), cols = static_cast<size_t>(w.shape[2]);
  std::vector<float> row(cols);
  for (int i = 0; i < op.k; ++i) {
    const size_t place = static_cast<size_t>(i), expert = static_cast<size_t>(route[place]);
    const float* input = x.data() + (op.per_expert ? place * cols : 0);
    for (size_t r = 0; r < rows; ++r) {
      decode_row(w.dtype, w.row(static_cast<int64_t>(expert * rows + r)), row.data(), cols);
      double sum = op.bias ? bias[expert * rows + r] : 0;
      for (size_t c = 0; c < cols; ++c) sum += static_cast<double>(input[c]) * row[c];
      out[place * rows + r] = static_cast<float>(sum);
    }
  }
}

void combine(int k, In experts, In route, Out out) {
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = 0;
    for (size_t e = 0; e < static_cast<size_t>(k); ++e) {
      sum += static_cast<double>(route[static_cast<size_t>(k) + e]) * experts[e * out.size() + i];
    }
    out[i] = static_cast<float>(sum);
  }
}

}  // namespace doppler::ref
