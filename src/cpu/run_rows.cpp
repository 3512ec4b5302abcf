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
    const int token = s_.first_row(op.logit_rows) + row;  // within the block
    switch (op.kind) {
      case OpKind::kAngles: return angles(op, row, token);
      case OpKind::kEmbed: return embed(op, row, token);
      case OpKind::kNorm: {
        const int group = static_cast<int>(op.numbers.size());
        const float eps = std::get<Norm>(step(op).op).eps;
        return k_.norm(in(op, 0, row), op.numbers.data(), out(op, row), width(op.out), group, eps);
      }
      case OpKind::kRope: return rope(op, row);
      case OpKind::kAdd: return k_.add(in(op, 0, row), in(op, 1, row), out(op, row), width(op.out));
      case OpKind::kGlu:
        if (op.interleaved) return k_.glu_interleaved(op.glu, in(op, 0, row), out(op, row), width(op.out));
        return k_.glu(op.glu, in(op, 0, row), in(op, 1, row), out(op, row), width(op.out));
      case OpKind::kSoftCap: return k_.softcap(in(op, 0, row), out(op, row), width(op.out), op.cap);
      case OpKind::kRoute: return route(op, row);
      case OpKind::kCombine: return combine(op, row);
      case OpKind::kQuantize: return quantize(op, row);
      case OpKind::kStoreKv: return store_kv(op, row, token);
      case OpKind::kCommitKv: return commit_kv(op, token);
      case OpKind::kMerge: return merge_row(s_, op, row, scratch_);
      case OpKind::kMatMul:
      case OpKind::kExpertMatMul:
      case OpKind::kAttend: return;  // nodes of their own
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
        const double angle = static_cast<double>(s_.position + token) * t.table.inv_freq[i];
        cosines[i] = static_cast<float>(std::cos(angle) * t.table.magnitude);
        cosines[half + i] = static_cast<float>(std::sin(angle) * t.table.magnitude);
      }
    }
  }

  void embed(const Op& op, int row, int token) {
    const Linear& m = op.matrix;
    float* to = out(op, row);
    const int index = s_.tokens[static_cast<size_t>(token)];
    if (m.packed) {
      m.format->packing->row(m.data + static_cast<size_t>(index / kStripRows) * m.stride, index % kStripRows, m.cols,
                             to);
    } else {
      decode_row(m.dtype, m.data + static_cast<size_t>(index) * m.stride, to, static_cast<size_t>(m.cols));
    }
    const float scale = std::get<Embed>(step(op).op).scale;
    for (int i = 0; i < m.cols; ++i) to[i] *= scale;
  }

  void rope(const Op& op, int row) {
    const int dim = std::get<Rope>(step(op).op).head_dim;
    const auto& places = s_.program->angle_of_step;
    const auto place = std::lower_bound(places.begin(), places.end(), std::pair<int, size_t>(op.step, 0));
    const float* cosines = in(op, 1, row) + place->second;
    k_.rope(in(op, 0, row), cosines, cosines + dim / 2, out(op, row), width(op.out), dim);
  }

  void quantize(const Op& op, int row) {
    const int n = op.columns;
    std::byte* to = s_.at<std::byte>(op.out, row, node_.logit_rows, scratch_);
    for (int i = 0; i < op.segments; ++i) {
      quantize_input(k_, op.input, s_.uses_gemm(op.out, op.input), in(op, 0, row) + i * n, n,
                     to + static_cast<size_t>(i) * input_row_bytes(op.input, n));
    }
  }

  // A ring's oldest keys are still needed by the first tokens of a block, so a block's keys are staged until all of
  // it has been attended to. A single token overwrites only the position that has just left its window.
  void store_kv(const Op& op, int row, int token) {
    const int layer = std::get<Attention>(step(op).op).layer, count = static_cast<int>(s_.tokens.size());
    const KvStore& cache = s_.cache->layer(layer);
    const int position = s_.position + token;
    if (!s_.cache->uses_staging(layer, count)) {
      return cache.store(k_, position % cache.capacity, in(op, 0, row), in(op, 1, row), scratch_.rounded);
    }
    const KvStore& staging = s_.cache->staging(layer);
    const int base = s_.cache->staging_base(layer, s_.position);
    for (int p = s_.cache->staging_first(layer, s_.position) + token; p < s_.position; p += count) {
      staging.copy_cell(p - base, cache, p % cache.capacity);  // each row brings its share of the older keys
    }
    staging.store(k_, position - base, in(op, 0, row), in(op, 1, row), scratch_.rounded);
  }

  void commit_kv(const Op& op, int token) {
    const int layer = std::get<Attention>(step(op).op).layer, count = static_cast<int>(s_.tokens.size());
    const KvStore& cache = s_.cache->layer(layer);
    if (!s_.cache->uses_staging(layer, count) || token + cache.capacity < count) return;
    const int position = s_.position + token;
    cache.copy_cell(position % cache.capacity, s_.cache->staging(layer),
                    position - s_.cache->staging_base(layer, s_.position));
  }

  // The k highest scores, the lower number first where they are equal, and the softmax over them.
  void route(const Op& op, int row) {
    const int k = std::get<Route>(step(op).op).k, experts = width(op.in[0]);
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
    for (int i = 0; i < k; ++i) total += std::exp(chosen[k + i] - highest);
    for (int i = 0; i < k; ++i) chosen[k + i] = static_cast<float>(std::exp(chosen[k + i] - highest) / total);
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
  }
}

}  // namespace doppler::cpu
