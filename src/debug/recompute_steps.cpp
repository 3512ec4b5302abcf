// The operations themselves.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/half.h"
#include "base/threads.h"
#include "debug/recompute.h"
#include "format/decode.h"

namespace doppler {
namespace {

void round_to(DType type, std::span<float> values) {
  for (float& v : values) {
    if (type == DType::kBF16) v = bf16_to_f32(f32_to_bf16(v));
    if (type == DType::kF16) v = f16_to_f32(f32_to_f16(v));
  }
}

void decode(const Tensor& tensor, int64_t row, float* out) {
  std::vector<std::byte> scratch;
  decode_row(tensor.dtype, tensor.rows_at(row, 1, scratch), out, index(tensor.cols()));
}

// Rows of a matrix, or of one of many, as a reading takes them.
class Rows {
 public:
  Rows(const Weights& weights, const WeightReading& reading, int64_t experts = 1) : reading_(reading) {
    for (const std::string& slot : reading.slots) {
      tensors_.push_back(&weights.at(slot));
      rows_ += tensors_.back()->rows() / experts;
    }
    cols_ = tensors_[0]->cols();
    if (!reading.transposed) return;
    std::vector<float> row(index(cols_));
    turned_.resize(index(rows_ * cols_));
    for (int64_t r = 0; r < rows_; ++r) {
      decode(*tensors_[0], r, row.data());
      for (int64_t c = 0; c < cols_; ++c) turned_[index(c * rows_ + r)] = row[index(c)];
    }
  }
  int64_t cols() const { return cols_; }

  void read(int64_t r, std::span<float> out, int64_t expert = 0) const {
    if (reading_.row) r = reading_.row(r);
    if (!turned_.empty()) {
      std::copy_n(turned_.begin() + r * cols_, cols_, out.begin());
    } else {
      size_t t = 0;
      while (t + 1 < tensors_.size() && r >= tensors_[t]->rows()) r -= tensors_[t++]->rows();
      const bool many = tensors_[t]->shape.size() == 3;
      const int64_t count = many ? tensors_[t]->shape[0] : 1;
      expert = (expert + reading_.expert_shift + count) % count;
      decode(*tensors_[t], many ? expert * tensors_[t]->shape[1] + r : r, out.data());
    }
    if (reading_.column) {
      const std::vector<float> as_it_lies(out.begin(), out.end());
      for (int64_t c = 0; c < cols_; ++c) out[index(c)] = as_it_lies[index(reading_.column(c))];
    }
    if (reading_.rounded != DType::kF32) round_to(reading_.rounded, out);
  }

 private:
  const WeightReading& reading_;
  std::vector<const Tensor*> tensors_;
  std::vector<float> turned_;
  int64_t rows_ = 0, cols_ = 0;
};

// Sums in float over 16 terms at most, and in double over those.
double dot(const float* a, const float* b, size_t n) {
  constexpr size_t kLanes = 16, kBlock = 16 * kLanes;
  double total = 0;
  size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    float sums[kLanes] = {};
    for (size_t j = 0; j < kBlock; j += kLanes) {
      for (size_t k = 0; k < kLanes; ++k) sums[k] += a[i + j + k] * b[i + j + k];
    }
    for (const float sum : sums) total += sum;
  }
  for (; i < n; ++i) total += static_cast<double>(a[i]) * b[i];
  return total;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<double> softmax(const std::vector<double>& x) {
  const double highest = *std::max_element(x.begin(), x.end());
  std::vector<double> out;
  double total = 0;
  for (const double v : x) total += out.emplace_back(std::exp(v - highest));
  for (double& v : out) v /= total;
  return out;
}

}  // namespace

Activate activate_of(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh:
      return [](double g, double) {
        return 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
      };
    case Activation::kSilu: return [](double g, double) { return g * sigmoid(g); };
    case Activation::kClampedSwiglu: return [](double g, double a) { return g * sigmoid(a * g); };
    case Activation::kSigmoid: return [](double g, double) { return sigmoid(g); };
  }
  return nullptr;
}

std::vector<float> Recomputation::small(const WeightReading& reading) const {
  std::vector<float> out;
  for (const std::string& slot : reading.slots) {
    const Tensor& tensor = model_.weights.at(slot);
    std::vector<float> row(index(tensor.cols()));
    for (int64_t r = 0; r < tensor.rows(); ++r) {
      decode(tensor, r, row.data());
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

std::vector<float> Recomputation::embed(const Formula& f, bool all) {
  const Rows rows(model_.weights, f.matrix);
  const auto width = index(rows.cols());
  const int32_t vocab = static_cast<int32_t>(model_.weights.at(f.matrix.slots[0]).rows());
  std::vector<float> out(positions(all).size() * width);
  for (size_t t = 0; t < positions(all).size(); ++t) {
    const std::span<float> row = std::span(out).subspan(t * width, width);
    rows.read(std::clamp(tokens_[index(positions(all)[t])] + f.token_shift, 0, vocab - 1), row);
    for (float& v : row) v *= std::get<Embed>(f.op).scale;
  }
  return out;
}

std::vector<float> Recomputation::norm(const Formula& f, bool all) {
  const Norm& op = std::get<Norm>(f.op);
  const std::vector<float>& x = *get(f.inputs[0], all, false);
  const bool unweighted = f.unweighted || f.matrix.slots.empty();
  const std::vector<float> w = unweighted ? std::vector<float>() : small(f.matrix);
  const auto group = index(op.group);
  std::vector<float> out(x.size());
  for (size_t start = 0; start + group <= x.size(); start += group) {
    double mean = 0, squares = 0;
    for (size_t i = 0; f.centred && i < group; ++i) mean += x[start + i] / static_cast<double>(group);
    for (size_t i = 0; i < group; ++i) squares += (x[start + i] - mean) * (x[start + i] - mean);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(group) + static_cast<double>(op.eps));
    for (size_t i = 0; i < group; ++i) {
      const double weight = unweighted ? 1 : static_cast<double>(op.offset) + w[(start + i) % w.size()];
      out[start + i] = static_cast<float>((x[start + i] - mean) * inverse * weight);
    }
  }
  return out;
}

// row[cols] of a matrix += that row of what the run's adapters add to it.
void Recomputation::adapt(const std::string& slot, size_t r, std::vector<float>& row) const {
  if (!model_.adapters) return;
  for (const AdapterUse& use : model_.adapters->standard) {
    const LoraPair* pair = model_.adapters->all[index(use.adapter)].find(slot);
    if (!pair || r >= index(pair->out) || row.size() != index(pair->in)) continue;
    for (size_t k = 0; k < index(pair->rank); ++k) {
      const float factor = use.scale * pair->scale * pair->b[k * index(pair->out) + r];
      for (size_t i = 0; i < row.size(); ++i) row[i] += factor * pair->a[k * row.size() + i];
    }
  }
}

std::vector<float> Recomputation::matmul(const Formula& f, bool all, bool columns) {
  const std::vector<float>& in = *get(f.inputs[0], all, false);
  const Rows rows(model_.weights, f.matrix);
  const auto cols = index(rows.cols()), n = in.size() / cols;
  const bool biased = std::get<MatMul>(f.op).bias;
  const std::vector<float> bias = biased ? small(f.second) : std::vector<float>();
  const auto width = columns ? sample_.columns.size() : index(model_.weights.at(f.matrix.slots[0]).rows());
  std::vector<float> out(n * width);
  const auto some = [&](size_t begin, size_t end) {
    std::vector<float> row(cols);
    for (size_t c = begin; c < end; ++c) {
      const size_t r = columns ? index(sample_.columns[c]) : c;
      rows.read(static_cast<int64_t>(r), row);
      adapt(f.matrix.slots[0], r, row);
      for (size_t t = 0; t < n; ++t) {
        const double sum = dot(&in[t * cols], row.data(), cols) + (biased ? f.bias_times * bias[r] : 0);
        out[t * width + c] = static_cast<float>(sum);
      }
    }
  };
  products_ += n * width * cols;
  if (n * width * cols < 4'000'000) {
    some(0, width);
  } else {
    static ThreadPool pool(0);
    pool.run([&](int i, int count) {
      const Range range = split_range(static_cast<long>(width), i, count);
      some(index(range.begin), index(range.end));
    });
  }
  return out;
}

std::vector<float> Recomputation::rope(const Formula& f, bool all) {
  const Rope& op = std::get<Rope>(f.op);
  RopeTable table = make_rope_table(f.rope, op.head_dim, f.context);
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    if (f.over_head)
      table.inv_freq[i] = static_cast<float>(std::pow(f.rope.theta, -2.0 * static_cast<double>(i) / op.head_dim));
    if (f.backwards) table.inv_freq[i] = -table.inv_freq[i];
  }
  const std::vector<float>& x = *get(f.inputs[0], all, false);
  const std::span<const int> rows = positions(all);
  const int width = static_cast<int>(x.size() / rows.size());
  return apply_rope(
      x, width, op.head_dim, table,
      [&](size_t row) { return rows[row] >= f.shift_from ? rows[row] + f.shift : rows[row]; }, f.neighbours);
}

std::vector<float> Recomputation::attention(const Formula& f, bool all) {
  AttentionGuess guess = f.attention;
  guess.op = std::get<Attention>(f.op);
  if (guess.op.sinks) guess.sinks = small(f.matrix);
  const Values q = get(f.inputs[0], all, false), k = get(f.inputs[1], true, false), v = get(f.inputs[2], true, false);
  products_ += 2 * q->size() * all_.size();
  return attend({*q, *k, *v, end_, positions(all)}, guess);
}

std::vector<float> Recomputation::glu(const Formula& f, bool all, bool columns) {
  const Glu& op = std::get<Glu>(f.op);
  const bool clamped = op.activation == Activation::kClampedSwiglu;
  const Activate activate = f.activate ? f.activate : activate_of(op.activation);
  const Values first = get(f.inputs[0], all, columns);
  const bool joined = f.inputs.size() == 1;
  const Values second = joined ? first : get(f.inputs[1], all, columns);
  std::vector<float> out(joined ? first->size() / 2 : first->size());
  // One input: gate and up of each expert, interleaved or one half after the other.
  size_t expert = out.size() / std::max<size_t>(1, positions(all).size());
  if (joined) {
    const Formula maker = current(maker_[index(f.inputs[0])]);
    if (const auto* e = std::get_if<ExpertMatMul>(&maker.op)) expert /= index(e->k);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t base = i / expert * 2 * expert, at = i % expert;
    const size_t a = joined ? base + (f.halves ? at : 2 * at) : i,
                 b = joined ? base + (f.halves ? expert + at : 2 * at + 1) : i;
    double gate = (*first)[a], up = (*second)[b];
    if (f.swapped) std::swap(gate, up);
    if (clamped && op.limit > 0) {
      gate = std::min(gate, static_cast<double>(op.limit));
      up = std::clamp(up, -static_cast<double>(op.limit), static_cast<double>(op.limit));
    }
    out[i] = static_cast<float>(activate(gate, op.alpha) * (up + (clamped ? 1 : 0) + f.plus));
  }
  return out;
}

std::vector<float> Recomputation::route(const Formula& f, bool all) {
  const Route& op = std::get<Route>(f.op);
  const std::vector<float>& scores = *get(f.inputs[0], all, false);
  const size_t experts = scores.size() / positions(all).size(), k = index(op.k);
  std::vector<float> out(positions(all).size() * 2 * k);
  const std::vector<float> learned = f.matrix.slots.empty() ? std::vector<float>() : small(f.matrix);
  const Routing routing = f.routing == Routing::kChosen && op.over_all ? Routing::kAll : f.routing;
  for (size_t t = 0; t < positions(all).size(); ++t) {
    const std::vector<double> row(scores.begin() + static_cast<std::ptrdiff_t>(t * experts),
                                  scores.begin() + static_cast<std::ptrdiff_t>((t + 1) * experts));
    std::vector<size_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    std::vector<double> weights;
    for (size_t i = 0; i < k; ++i) weights.push_back(row[order[i]]);
    switch (routing) {
      case Routing::kChosen: weights = softmax(weights); break;
      case Routing::kAll: {
        const std::vector<double> everything = softmax(row);
        for (size_t i = 0; i < k; ++i) weights[i] = everything[order[i]];
        break;
      }
      case Routing::kSigmoid:
      case Routing::kSigmoidNormalized: {
        double total = 0;
        for (double& w : weights) total += w = sigmoid(w);
        for (double& w : weights) w /= routing == Routing::kSigmoid ? 1 : total;
        break;
      }
      case Routing::kEqual: weights.assign(k, 1.0 / static_cast<double>(k)); break;
    }
    for (size_t i = 0; i < k; ++i) {
      out[t * 2 * k + i] = static_cast<float>(order[i]);
      out[t * 2 * k + k + i] = static_cast<float>(weights[i] * (learned.empty() ? 1 : learned[order[i]]));
    }
  }
  return out;
}

std::vector<float> Recomputation::experts(const Formula& f, bool all) {
  const ExpertMatMul& op = std::get<ExpertMatMul>(f.op);
  const Tensor& tensor = model_.weights.at(f.matrix.slots[0]);
  const Values x = get(f.inputs[0], all, false), route = get(f.inputs[1], all, false);
  const Rows rows(model_.weights, f.matrix, tensor.shape[0]);
  const size_t n = positions(all).size(), cols = index(rows.cols()), k = index(op.k);
  const size_t count = index(tensor.shape[1]);
  const std::vector<float> bias = op.bias ? small(f.second) : std::vector<float>();
  std::vector<float> out(n * k * count), row(cols);
  products_ += n * k * count * cols;
  for (size_t e = 0; e < index(tensor.shape[0]); ++e) {  // expert by expert: each row is decoded once
    std::vector<std::pair<size_t, size_t>> users;        // token, place
    for (size_t t = 0; t < n; ++t) {
      for (size_t i = 0; i < k; ++i) {
        if (index((*route)[t * 2 * k + i]) == e) users.emplace_back(t, i);
      }
    }
    for (size_t r = 0; !users.empty() && r < count; ++r) {
      rows.read(static_cast<int64_t>(r), row, static_cast<int64_t>(e));
      for (const auto& [t, i] : users) {
        const double sum = dot(&(*x)[(op.per_expert ? t * k + i : t) * cols], row.data(), cols);
        out[(t * k + i) * count + r] = static_cast<float>(sum + (op.bias ? f.bias_times * bias[e * count + r] : 0));
      }
    }
  }
  return out;
}

std::vector<float> Recomputation::combine(const Formula& f, bool all) {
  const size_t k = index(std::get<Combine>(f.op).k), n = positions(all).size();
  const Values x = get(f.inputs[0], all, false), route = get(f.inputs[1], all, false);
  const size_t width = x->size() / n / k;
  std::vector<float> out(n * width);
  for (size_t t = 0; t < n; ++t) {
    for (size_t c = 0; c < width; ++c) {
      double sum = 0;
      for (size_t e = 0; e < k; ++e) {
        const double weight = f.unweighted ? 1 : (*route)[t * 2 * k + k + e];
        sum += weight * (*x)[(t * k + e) * width + c];
      }
      out[t * width + c] = static_cast<float>(sum);
    }
  }
  return out;
}

}  // namespace doppler
