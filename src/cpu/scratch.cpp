// What one thread needs, measured once: the largest of everything the program does.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

struct Sizes {
  size_t decoded = 0, dim = 1, experts = 1, per_token = 1;
  size_t query_rows = kAttendRows;  // or a whole group of heads, where that is more
};

Sizes measure(const Program& program, const Plan& plan) {
  Sizes s;
  for (const Node& node : program.nodes) {
    for (const Op& op : node.ops) {
      if (op.kind == OpKind::kExpertMatMul) s.decoded = std::max(s.decoded, decoded_floats(op.matrix));
    }
    for (const MatMulPart& part : node.parts) {
      s.decoded = std::max({s.decoded, decoded_floats(part.a), part.glu ? decoded_floats(part.b) : size_t{0}});
    }
  }
  for (const Step& step : plan.steps) {
    if (const auto* op = std::get_if<Attention>(&step.op)) {
      s.dim = std::max(s.dim, static_cast<size_t>(op->head_dim));
      s.query_rows = std::max(s.query_rows, static_cast<size_t>(op->heads / op->kv_heads));
    }
    if (const auto* op = std::get_if<ExpertMatMul>(&step.op)) {
      s.experts = std::max(s.experts, static_cast<size_t>(step.weights[0].shape[0]));
      s.per_token = std::max(s.per_token, static_cast<size_t>(op->k));
    }
  }
  return s;
}

// Hands out consecutive pieces; with no memory it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(size_t count) {
    T* piece = memory_ ? reinterpret_cast<T*>(memory_ + used_) : nullptr;
    used_ += round_up(count * sizeof(T), kLine);
    return piece;
  }
  size_t used() const { return used_; }

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

Scratch lay_out(const Program& program, const Plan& plan, int block, Pieces& pieces) {
  const Sizes s = measure(program, plan);
  const size_t tokens = static_cast<size_t>(block), rows = s.query_rows;
  Scratch scratch{};
  scratch.linear.tile = pieces.take<std::byte>(kTileBytes);
  scratch.linear.decoded = pieces.take<float>(s.decoded);
  for (float*& c : scratch.c)
    c = pieces.take<float>(std::max(tokens * kTileRows * kMaxTiles, size_t{kMaxGemvTokens} * kMaxChunkRows));
  scratch.inputs = pieces.take<const void*>(tokens * s.per_token);
  scratch.local = pieces.take<std::byte>(program.local_bytes);
  scratch.queries = pieces.take<float>(rows * s.dim);
  scratch.mixed = pieces.take<float>(rows * s.dim);
  scratch.scores = pieces.take<float>(rows * kAttendScratch);
  scratch.highest = pieces.take<float>(rows);
  scratch.total = pieces.take<float>(rows);
  scratch.first = pieces.take<int32_t>(rows);
  scratch.last = pieces.take<int32_t>(rows);
  scratch.rounded = pieces.take<int16_t>(s.dim);
  scratch.expert_start = pieces.take<int32_t>(s.experts + 1);
  scratch.expert_tokens = pieces.take<int32_t>(tokens * s.per_token);
  return scratch;
}

}  // namespace

size_t scratch_bytes(const Program& program, const Plan& plan, int block) {
  Pieces pieces(nullptr);
  lay_out(program, plan, block, pieces);
  return pieces.used();
}

Scratch make_scratch(const Program& program, const Plan& plan, int block, std::byte* memory) {
  Pieces pieces(memory);
  return lay_out(program, plan, block, pieces);
}

size_t partial_floats(const Plan& plan, int context) {
  size_t most = 0;
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op) continue;
    most = std::max(most,
                    static_cast<size_t>(op->heads) * max_units(*op, context) * static_cast<size_t>(op->head_dim + 2));
  }
  return most * kMaxSplitQueries;
}

}  // namespace doppler::cpu
