// Operations that look at one row only, one after the other on each row.
#include <algorithm>
#include <cmath>

#include "cpu/run.h"
#include "format/decode.h"

namespace doppler::cpu {
namespace {

constexpr int kRowsAtOnce = 4;  // rows of a piece of work

class RowRunner {
 public:
  RowRunner(const RunState& state, const Node& node, const Scratch& scratch)
      : s_(state), node_(node), scratch_(scratch), k_(*state.kernels) {}

  void run(const Op& op, int row) {
    const int token = s_.pass_row(row, op.logit_rows);
    switch (op.kind) {
      case OpKind::kAngles: return angles(op, row, token);
      case OpKind::kEmbed: return embed(op, row, token);
      case OpKind::kNorm: {
        const int group = static_cast<int>(op.numbers.size());
        const float eps = std::get<Norm>(step(op).op).eps;
        return k_.norm(in(op, 0, row), op.numbers.data(), out(op, row), width(op.out), group, eps);
      }
      case OpKind::kRope: return rope(op, row);
      case OpKind::kAdd: return add(op, row);
      case OpKind::kGlu:
        if (std::get<Glu>(step(op).op).one_gate) return weigh(op, row);
        if (op.interleaved) return k_.glu_interleaved(op.glu, in(op, 0, row), out(op, row), width(op.out));
        return k_.glu(op.glu, in(op, 0, row), in(op, 1, row), out(op, row), width(op.out));
      case OpKind::kSoftCap: return k_.softcap(in(op, 0, row), out(op, row), width(op.out), op.cap);
      case OpKind::kScale: return scale(op, row, token);
      case OpKind::kRoute: return route(op, row);
      case OpKind::kCombine: return combine(op, row);
      case OpKind::kPart: return part(op, row);
      case OpKind::kQuantize: return quantize(op, row);
      case OpKind::kStoreKv: return store_kv(op, row, token);
      case OpKind::kMerge: return merge_row(s_, op, row, scratch_);
      case OpKind::kMatMul:
      case OpKind::kExpertMatMul:
      case OpKind::kAttend:
      case OpKind::kShortConv:
      case OpKind::kDeltaNet:
      case OpKind::kLoraDown:
      case OpKind::kLoraUp: return;  // nodes of their own
    }
  }

 private:
  const Step& step(const Op& op) const { return s_.plan->steps[static_cast<size_t>(op.step)]; }
  const float* in(const Op& op, size_t i, int row) const {
    return s_.at<float>(op.in[i], row, node_.logit_rows, scratch_);
  }
  float* out(const Op& op, int row) const { return s_.at<float>(op.out, row, node_.logit_rows, scratch_); }
  int width(int buffer) const {
    return static_cast<int>(s_.program->buffers[static_cast<size_t>(buffer)].row_bytes / sizeof(float));
  }

  void angles(const Op& op, int row, int token) {
    float* row_out = out(op, row);
    for (const AngleTable& t : s_.program->angles) {
      const size_t half = t.table.inv_freq.size();
      float* cosines = row_out + t.offset;
      for (size_t i = 0; i < half; ++i) {
        const double angle = s_.pass->positions[static_cast<size_t>(token)] * t.table.inv_freq[i];
        cosines[i] = static_cast<float>(std::cos(angle) * t.table.magnitude);
        cosines[half + i] = static_cast<float>(std::sin(angle) * t.table.magnitude);
      }
    }
  }

  void embed(const Op& op, int row, int token) {
    const Linear& m = op.matrix;
    float* to = out(op, row);
    const int index = s_.pass->tokens[static_cast<size_t>(token)];
    if (m.packed) {
      m.format->packing->row(m.data + static_cast<size_t>(index / kStripRows) * m.stride, index % kStripRows, m.cols,
                             to);
    } else {
      decode_row(m.dtype, m.data + static_cast<size_t>(index) * m.stride, to, static_cast<size_t>(m.cols));
    }
    const float scale = std::get<Embed>(step(op).op).scale;
    for (int i = 0; i < m.cols; ++i) to[i] *= scale;
  }

  void add(const Op& op, int row) {
    const float factor = std::get<Add>(step(op).op).scale;
    const float* a = in(op, 0, row);
    float* to = out(op, row);
    if (factor == 1) return k_.add(a, in(op, 1, row), to, width(op.out));
    std::copy_n(a, width(op.out), to);
    k_.axpy(factor, in(op, 1, row), to, width(op.out));
  }

  // Activations are linear in what they gate.
  void weigh(const Op& op, int row) {
    const float one = 1, *x = in(op, 1, row);
    float factor = 0, *to = out(op, row);
    k_.glu(op.glu, in(op, 0, row), &one, &factor, 1);
    for (int i = 0; i < width(op.out); ++i) to[i] = x[i] * factor;
  }

  void part(const Op& op, int row) {
    const auto& by = std::get<Part>(step(op).op);
    const float* x = in(op, 0, row) + by.index * by.width;
    float* to = out(op, row);
    for (int i = 0; i < width(op.out); i += by.width) std::copy_n(x + i * by.parts, by.width, to + i);
  }

  void scale(const Op& op, int row, int token) {
    const auto& by = std::get<Scale>(step(op).op);
    const double turns = std::floor(s_.pass->positions[static_cast<size_t>(token)] / static_cast<double>(by.length));
    const auto factor = static_cast<float>(op.factor * (1 + by.beta * std::log1p(turns)));
    const float* x = in(op, 0, row);
    float* to = out(op, row);
    for (int i = 0; i < width(op.out); ++i) to[i] = x[i] * factor;
  }

  void rope(const Op& op, int row) {
    const auto& turn = std::get<Rope>(step(op).op);
    const auto& places = s_.program->angle_of_step;
    const auto place = std::lower_bound(places.begin(), places.end(), std::pair<int, size_t>(op.step, 0));
    const float* cosines = in(op, 1, row) + place->second;
    k_.rope(in(op, 0, row), cosines, cosines + turn.dims / 2, out(op, row), width(op.out), turn.head_dim, turn.dims);
  }

  void quantize(const Op& op, int row) {
    const bool gemm = row >= s_.gemv_rows(node_.logit_rows, op.out, op.input);
    if (node_.quantizes_late && by_groups(op.input, gemm)) return;  // the product has done it
    const int n = op.columns;
    std::byte* to = s_.at<std::byte>(op.out, row, node_.logit_rows, scratch_);
    for (int i = 0; i < op.segments; ++i) {
      quantize_input(k_, op.input, gemm, in(op, 0, row) + i * n, n,
                     to + static_cast<size_t>(i) * input_row_bytes(op.input, n));
    }
  }

  void store_kv(const Op& op, int row, int token) {
    const int layer = std::get<Attention>(step(op).op).layer;
    const int position = s_.pass->positions[static_cast<size_t>(token)];
    const PassItem& item = s_.pass->items[static_cast<size_t>(s_.pass->item_of[static_cast<size_t>(token)])];
    s_.pages->store(k_, layer, s_.cache->page(*item.sequence, layer, position), position % kKeyTile, in(op, 0, row),
                    in(op, 1, row), scratch_.rounded);
  }

  // The k highest scores, the lower number first where they are equal, and the softmax over them or over all.
  void route(const Op& op, int row) {
    const auto& [k, over_all] = std::get<Route>(step(op).op);
    const int experts = width(op.in[0]);
    const float* scores = in(op, 0, row);
    float* chosen = out(op, row);
    for (int i = 0; i < k; ++i) {
      int best = -1;
      for (int e = 0; e < experts; ++e) {
        bool taken = false;
        for (int j = 0; j < i; ++j) taken |= static_cast<int>(chosen[j]) == e;
        if (!taken && (best < 0 || scores[e] > scores[best])) best = e;
      }
      chosen[i] = static_cast<float>(best);
      chosen[k + i] = scores[best];
    }
    double total = 0;
    const double highest = chosen[k];
    const std::span<const float> weighed = over_all ? std::span(scores, static_cast<size_t>(experts))
                                                    : std::span<const float>(chosen + k, static_cast<size_t>(k));
    for (const float score : weighed) total += std::exp(score - highest);
    for (int i = 0; i < k; ++i) {
      const double learned = op.numbers.empty() ? 1 : op.numbers[static_cast<size_t>(chosen[i])];
      chosen[k + i] = static_cast<float>(std::exp(chosen[k + i] - highest) / total * learned);
    }
  }

  void combine(const Op& op, int row) {
    const int k = std::get<Combine>(step(op).op).k, n = width(op.out);
    const float* experts = in(op, 0, row);
    const float* weights = in(op, 1, row) + k;
    float* to = out(op, row);
    std::fill(to, to + n, 0.0f);
    for (int i = 0; i < k; ++i) k_.axpy(weights[i], experts + i * n, to, n);
  }

  const RunState& s_;
  const Node& node_;
  const Scratch& scratch_;
  const Kernels& k_;
};

}  // namespace

void run_rows(const RunState& state, const Node& node, Work work, const Scratch& scratch) {
  RowRunner runner(state, node, scratch);
  const int rows = state.rows(node.logit_rows), pieces = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for (int piece; (piece = work.next(pieces)) >= 0;) {
    for (int r = piece * kRowsAtOnce; r < std::min(rows, (piece + 1) * kRowsAtOnce); ++r) {
      for (const Op& op : node.ops) runner.run(op, r);
    }
  }
}

void run_node(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next) {
  switch (node.kind) {
    case NodeKind::kRows: return run_rows(state, node, work, scratch);
    case NodeKind::kMatMul: return run_matmul(state, node, work, scratch, next);
    case NodeKind::kExperts: return run_experts(state, node, work, scratch);
    case NodeKind::kAttend: return run_attend(state, node, work, scratch, next);
    case NodeKind::kState: return run_state(state, node, work, scratch);
    case NodeKind::kLora: return run_lora(state, node, work, scratch);
  }
}

}  // namespace doppler::cpu
