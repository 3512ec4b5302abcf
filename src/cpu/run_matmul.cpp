// Matrix products. GEMV, for tokens that are decoded: rows of the matrix are read once and multiplied with all of them.
// GEMM, for a prompt's: 32 rows at a time are unpacked to a tile that stays in cache while all tokens pass.
#include <algorithm>

#include "cpu/run.h"

namespace doppler::cpu {
namespace {

// Of weights that a thread takes at once when tokens are few. Larger where two matrices are read in turns: every change
// from one to the other costs some of the machine's own reading ahead.
constexpr size_t kChunkBytes = 64 << 10, kPairChunkBytes = 192 << 10;

// Rows a thread takes at once when tokens are few: whole groups of 32 where the rows are quantised as they come, and
// what the kernel takes together.
int chunk_rows(const MatMulPart& part) {
  const int strips = part.a.packed ? part.a.format->packing->gemv_strips : 1;
  const int grain = std::max(part.out_quantised >= 0 ? kGroup : kStripRows, strips * kStripRows);
  const size_t row_bytes = part.a.stride / (part.a.packed ? kStripRows : 1);
  const size_t bytes = part.glu ? kPairChunkBytes : kChunkBytes;
  const int rows = static_cast<int>(bytes / std::max<size_t>(row_bytes, 1)) / grain * grain;
  return std::clamp(rows, grain, kMaxChunkRows);
}

// Where a row's weights lie, of a matrix that is fetched ahead; null for others.
const std::byte* weights_at(const Linear& m, int row) {
  return m.packed ? m.data + m.strides(row) * m.stride : nullptr;
}

class MatMulRunner {
 public:
  MatMulRunner(const RunState& state, const Node& node, const Scratch& scratch)
      : s_(state),
        node_(node),
        scratch_(scratch),
        k_(*state.kernels),
        tokens_(state.rows(node.logit_rows)),
        gemv_tokens_(state.gemv_rows(node.logit_rows, node.parts[0].in, node.parts[0].a.input())) {}

  bool has_gemm() const { return gemv_tokens_ < tokens_; }

  // All tokens' products with rows first … first+count-1 of the matrix.
  void run(const MatMulPart& part, int first, int count, const std::byte* next) {
    if (gemv_tokens_ > 0) gemv(part, first, count, has_gemm() ? nullptr : next);
    if (has_gemm()) gemm(part, first, count);
  }

 private:
  void gemv(const MatMulPart& part, int first, int count, const std::byte* next) {
    const bool direct = gemv_tokens_ == 1 && !part.glu && part.softcap == 0 && part.out_quantised < 0;
    if (direct) {
      const void* x = s_.at<std::byte>(part.in, 0, node_.logit_rows, scratch_);
      float* to = s_.at<float>(part.out, 0, node_.logit_rows, scratch_) + first;
      return gemv_rows(k_, part.a, first, count, &x, 1, to, 0, scratch_.linear, next);
    }
    const size_t pitch = kMaxChunkRows;
    for (int t0 = 0; t0 < gemv_tokens_; t0 += kMaxGemvTokens) {
      const int some = std::min(kMaxGemvTokens, gemv_tokens_ - t0);
      const void* x[kMaxGemvTokens];
      for (int t = 0; t < some; ++t) x[t] = s_.at<std::byte>(part.in, t0 + t, node_.logit_rows, scratch_);
      const std::byte* after_a = part.glu ? weights_at(part.b, first) : next;
      gemv_rows(k_, part.a, first, count, x, some, scratch_.c[0], pitch, scratch_.linear, after_a);
      if (part.glu) gemv_rows(k_, part.b, first, count, x, some, scratch_.c[1], pitch, scratch_.linear, next);
      for (int t = 0; t < some; ++t) {
        const size_t at = static_cast<size_t>(t) * pitch;
        finish(part, t0 + t, first, count, scratch_.c[0] + at, scratch_.c[1] + at);
      }
    }
  }

  void gemm(const MatMulPart& part, int first, int count) {
    const int tokens = tokens_ - gemv_tokens_;
    for (int t = 0; t < tokens; ++t) {
      scratch_.inputs[t] = s_.at<std::byte>(part.in, gemv_tokens_ + t, node_.logit_rows, scratch_);
    }
    gemm_tiles(k_, part.a, first, count, scratch_.inputs, tokens, scratch_.c[0], scratch_.linear);
    if (part.glu) gemm_tiles(k_, part.b, first, count, scratch_.inputs, tokens, scratch_.c[1], scratch_.linear);
    for (int r = 0; r < count; r += kTileRows) {
      for (int t = 0; t < tokens; ++t) {
        const ptrdiff_t at = static_cast<ptrdiff_t>(r) * tokens + t * kTileRows;
        finish(part, gemv_tokens_ + t, first + r, std::min(kTileRows, count - r), scratch_.c[0] + at,
               scratch_.c[1] + at);
      }
    }
  }

  // What follows the product, on rows first … first+count-1 of token t; a may be overwritten.
  void finish(const MatMulPart& part, int t, int first, int count, float* a, const float* b) {
    const bool gemm =
        part.out_quantised >= 0 && t >= s_.gemv_rows(node_.logit_rows, part.out_quantised, part.quantised_as);
    const bool quantised_later = !by_groups(part.quantised_as, gemm);  // what is quantised stays floats until then
    const int floats = part.out >= 0 ? part.out : quantised_later ? part.out_quantised : -1;
    float* to = floats >= 0 ? s_.at<float>(floats, t, node_.logit_rows, scratch_) + first : a;
    if (part.glu) k_.glu(part.glu_params, a, b, to, count);
    if (part.softcap > 0) k_.softcap(part.glu ? to : a, to, count, part.softcap);
    if (!part.glu && part.softcap <= 0 && to != a) std::copy(a, a + count, to);
    if (part.out_quantised < 0 || quantised_later) return;
    void* blocks = s_.at<std::byte>(part.out_quantised, t, node_.logit_rows, scratch_);
    const int end = first + count;
    for (int r = first; r < end; r += kGroup) {
      quantize_input_group(k_, part.quantised_as, to + (r - first), std::min(kGroup, end - r), blocks, r);
    }
    if (end == part.a.rows) {  // nothing may be left of another value behind the last group
      for (int r = (end + kGroup - 1) / kGroup * kGroup; r % kBlock != 0; r += kGroup) {
        quantize_input_group(k_, part.quantised_as, to, 0, blocks, r);
      }
    }
  }

  const RunState& s_;
  const Node& node_;
  const Scratch& scratch_;
  const Kernels& k_;
  const int tokens_, gemv_tokens_;
};

// How the rows of a part are divided into pieces of work. For GEMM, pieces are a few whole tiles, as equal
// as can be: with few pieces a thread that has one more would keep the others waiting.
struct Pieces {
  int rows = 0, count = 0, each = 0;  // each: rows of a piece; 0 where tiles are shared out evenly

  Pieces() = default;
  Pieces(const MatMulPart& part, bool gemm, int threads) : rows(part.a.rows) {
    if (gemm) {
      const int tiles = (rows + kTileRows - 1) / kTileRows;
      count = std::min(tiles, (tiles + kMaxTiles * threads - 1) / (kMaxTiles * threads) * threads);
    } else {
      each = chunk_rows(part);
      count = (rows + each - 1) / each;
    }
  }
  Range at(int piece) const {
    if (each == 0) return split_range(rows, piece, count, kTileRows);
    return {static_cast<long>(piece) * each, std::min<long>(rows, static_cast<long>(piece + 1) * each)};
  }
};

// The pieces of all of a node's products.
struct NodePieces {
  const Node& node;
  Pieces of_part[kMaxParts];
  int count = 0;

  NodePieces(const Node& n, bool gemm, int threads) : node(n) {
    for (size_t p = 0; p < node.parts.size(); ++p) {
      of_part[p] = Pieces(node.parts[p], gemm, threads);
      count += of_part[p].count;
    }
  }
  struct Place {
    const MatMulPart& part;
    int first, count;  // rows
  };
  Place at(int piece) const {
    size_t p = 0;
    for (; piece >= of_part[p].count; ++p) piece -= of_part[p].count;
    const Range rows = of_part[p].at(piece);
    return {node.parts[p], static_cast<int>(rows.begin), static_cast<int>(rows.end - rows.begin)};
  }
  const std::byte* weights(int piece) const {
    const Place place = at(piece);
    return weights_at(place.part.a, place.first);
  }
};

}  // namespace

const std::byte* first_weights(const Node& node, int thread, int threads) {
  if (node.kind != NodeKind::kMatMul) return nullptr;
  const NodePieces pieces(node, false, threads);
  const Range own = Work::own_range(pieces.count, thread, threads);
  return own.begin < own.end ? pieces.weights(static_cast<int>(own.begin)) : nullptr;
}

void run_matmul(const RunState& state, const Node& node, Work work, const Scratch& scratch, const std::byte* next) {
  MatMulRunner runner(state, node, scratch);
  const NodePieces pieces(node, runner.has_gemm(), state.threads);
  for (int piece; (piece = work.next(pieces.count)) >= 0;) {
    const auto [part, first, count] = pieces.at(piece);
    runner.run(part, first, count, work.continues(pieces.count, piece) ? pieces.weights(piece + 1) : next);
  }
}

}  // namespace doppler::cpu
