// Operations that go on from a sequence's state: each piece of work is some channels or a head of one sequence, token
// by token, so the numbers are the same however a text is cut.
#include <algorithm>
#include <cmath>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

constexpr int kChannels = 256;  // of a convolution, in a piece of work

// Where a part of an item's state goes, with what it goes on from.
float* state_of(const RunState& s, const PassItem& item, int number, size_t first, size_t count) {
  const auto at = [&](uint32_t copy) {
    return s.states + copy * s.state_layout->total + s.state_layout->offsets[static_cast<size_t>(number)] + first;
  };
  float* to = at(item.state_to);
  if (item.state_from == KvCache::kNoState) {
    std::fill_n(to, count, 0.0f);
  } else if (item.state_from != item.state_to) {
    std::copy_n(at(item.state_from), count, to);
  }
  return to;
}

// The state's rows lie apart, so a piece of channels is copied row by row.
void short_conv(const RunState& s, const Op& op, const ShortConv& conv, const PassItem& item, int first, int count,
                const Scratch& scratch) {
  const int kernel = conv.kernel;
  const auto channels = static_cast<size_t>(conv.channels);
  float seen[kMaxConvKernel][kChannels];  // the last inputs, token t in t % kernel
  const float* window[kMaxConvKernel];
  float* state[kMaxConvKernel];
  for (int i = 0; i + 1 < kernel; ++i) {
    const size_t at = static_cast<size_t>(i) * channels + static_cast<size_t>(first);
    state[i] = state_of(s, item, conv.state, at, static_cast<size_t>(count));
    std::copy_n(state[i], count, seen[i]);
  }
  for (int t = 0; t < item.rows; ++t) {
    const int row = item.first_row + t;
    const float* x = s.at<float>(op.in[0], row, false, scratch) + first;
    float* now = seen[(t + kernel - 1) % kernel];
    if (conv.gated) {
      for (int c = 0; c < count; ++c) now[c] = x[c] * x[2 * channels + static_cast<size_t>(c)];
    } else {
      std::copy_n(x, count, now);
    }
    for (int i = 0; i < kernel; ++i) window[i] = seen[(t + i) % kernel];
    s.kernels->convolve(window, op.numbers.data() + first, channels, kernel, conv.gated ? x + channels : nullptr,
                        s.at<float>(op.out, row, false, scratch) + first, count);
  }
  for (int i = 0; i + 1 < kernel; ++i) std::copy_n(seen[(item.rows + i) % kernel], count, state[i]);
}

// x / √(Σx² + eps) · factor
void to_length(const float* x, int n, float eps, double factor, float* out) {
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto scale = static_cast<float>(factor / std::sqrt(squares + eps));
  for (int i = 0; i < n; ++i) out[i] = x[i] * scale;
}

void delta_net(const RunState& s, const Op& op, const DeltaNet& net, const PassItem& item, int head,
               const Scratch& scratch) {
  const int key_dim = net.key_dim, value_dim = net.value_dim, keys = net.key_heads * key_dim;
  const size_t each = static_cast<size_t>(key_dim) * static_cast<size_t>(value_dim);
  float* state = state_of(s, item, net.state, static_cast<size_t>(head) * each, each);
  const float decay = op.numbers[static_cast<size_t>(head)];
  const float dt = op.numbers[static_cast<size_t>(net.value_heads + head)];
  float q[kMaxDeltaKeyDim], k[kMaxDeltaKeyDim];
  for (int t = 0; t < item.rows; ++t) {
    const int row = item.first_row + t;
    const float* qkv = s.at<float>(op.in[0], row, false, scratch);
    const float* query = qkv + head / (net.value_heads / net.key_heads) * key_dim;
    to_length(query, key_dim, net.eps, 1 / std::sqrt(static_cast<double>(key_dim)), q);
    to_length(query + keys, key_dim, net.eps, 1, k);
    const double b = s.at<float>(op.in[1], row, false, scratch)[head];
    const double a = static_cast<double>(s.at<float>(op.in[2], row, false, scratch)[head]) + dt;
    const double softplus = std::max(a, 0.0) + std::log1p(std::exp(-std::abs(a)));
    const auto kept = static_cast<float>(std::exp(decay * softplus));
    const auto beta = static_cast<float>(1 / (1 + std::exp(-b)));
    s.kernels->delta_step(state, q, k, qkv + 2 * keys + head * value_dim, kept, beta, key_dim, value_dim,
                          s.at<float>(op.out, row, false, scratch) + head * value_dim);
  }
}

}  // namespace

void run_state(const RunState& state, const Node& node, Work work, const Scratch& scratch) {
  const Op& op = node.ops[0];
  const Operation& step = state.plan->steps[static_cast<size_t>(op.step)].op;
  const auto* conv = std::get_if<ShortConv>(&step);
  const auto* net = std::get_if<DeltaNet>(&step);
  const int each = conv ? (conv->channels + kChannels - 1) / kChannels : net->value_heads;
  const int pieces = each * static_cast<int>(state.pass->items.size());
  for (int piece; (piece = work.next(pieces)) >= 0;) {
    const PassItem& item = state.pass->items[static_cast<size_t>(piece / each)];
    const int part = piece % each;
    if (conv) {
      const int first = part * kChannels;
      short_conv(state, op, *conv, item, first, std::min(kChannels, conv->channels - first), scratch);
    } else {
      delta_net(state, op, *net, item, part, scratch);
    }
  }
}

}  // namespace doppler::cpu
