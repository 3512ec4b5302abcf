// Which kernel, tile and split a matrix product takes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "gpu/ops/matmul.h"

namespace doppler::gpu {
namespace {

// The tile of a workgroup of the matrix product: lanes × a thread's tile (ops/lib/thread_tile.wgsl).
struct MatmulTile {
  const char* thread_tile;  // "r8t4": 8 rows by 4 tokens per thread
  uint32_t row_lanes, token_lanes;
  uint32_t buffers = 1;  // these three: kInt8 only, see matmul_int8_tile.wgsl
  bool prefetch = true;
  bool magic = true;

  constexpr uint32_t thread_rows() const { return static_cast<uint32_t>(thread_tile[1] - '0'); }
  constexpr uint32_t thread_tokens() const { return static_cast<uint32_t>(thread_tile[3] - '0'); }
  constexpr uint32_t rows() const { return row_lanes * thread_rows(); }
  constexpr uint32_t tokens() const { return token_lanes * thread_tokens(); }
  constexpr uint32_t threads() const { return row_lanes * token_lanes; }
};

// Of workgroup memory.
uint32_t workgroup_bytes(MatmulKernel kernel, const MatmulTile& tile) {
  const uint32_t lines = tile.rows() + tile.tokens();
  // 64 columns as bytes with two pairs of factors, or 32 as floats.
  return kernel == MatmulKernel::kInt8 ? lines * (64 + 16) * tile.buffers : lines * 128;
}

constexpr uint64_t kEnoughWorkgroups = 264;  // two per processor on the largest GPUs of today
constexpr uint64_t kMaxSplits = 4;
constexpr uint64_t kMinSplitCols = 512;            // of one part: less does not pay for adding the parts
constexpr uint32_t kMaxBufferedBytes = 32u << 10;  // of workgroup memory for two buffers

// From the largest to the smallest: large tiles read less, small ones keep more processors busy. Lanes and the tiles of
// threads are powers of two. The last of each list fits every device and compiles fastest.
constexpr MatmulTile kInt8Tiles[] = {
    {"r4t8", 32, 8, 2},
    {"r4t8", 32, 4, 2},
    {"r4t8", 16, 4, 2},
    {"r4t4", 8, 8, 1},
};
constexpr MatmulTile kFloatTiles[] = {
    {"r8t8", 16, 16},
    {"r8t4", 16, 16},
    {"r4t4", 16, 16},
    {"r4t4", 8, 8},
};

// What tuning compares besides.
constexpr MatmulTile kOtherInt8Tiles[] = {
    {"r4t8", 32, 8, 1},
    {"r4t8", 32, 4, 1},
    {"r4t8", 16, 4, 1},
    {"r4t8", 16, 16, 2},
    {"r4t8", 16, 8, 2},
    {"r8t8", 16, 16, 1},
    {"r8t8", 16, 16, 2},
    {"r8t8", 16, 8, 2},
    {"r8t8", 8, 8, 1},
    {"r8t8", 8, 8, 2},
    {"r8t4", 32, 8, 1},
    {"r8t4", 16, 16, 1},
    {"r8t4", 16, 16, 2},
    {"r8t4", 16, 8, 2},
    {"r8t4", 8, 16, 2},
    {"r8t4", 8, 8, 1},
    {"r8t4", 8, 8, 2},
    {"r4t4", 16, 16, 2},
    {"r4t4", 32, 4, 2},
    {"r4t4", 16, 8, 2},
    {"r4t4", 8, 8, 2},
    {"r4t8", 32, 8, 1, false},
    {"r8t4", 8, 8, 1, false},
    {"r4t8", 32, 8, 2, true, false},
    {"r8t4", 8, 8, 1, true, false},
};

// Tiles of matmul_matrix.wgsl, and what they cost: microseconds of a workgroup alone on a processor of an H200, for a
// step of 64 columns and besides; `together`: of each when several share a processor.
struct MatrixTile {
  const char* subgroup_tile;
  uint32_t rows, tokens, threads;
  double step, start, together;

  constexpr uint32_t bytes() const { return (rows + tokens) * 144; }  // of workgroup memory
};
constexpr MatrixTile kMatrixTiles[] = {{"t64", 128, 128, 256, 1.09, 8.8, 1}, {"t32", 64, 64, 128, 0.65, 3.6, 0.66}};
constexpr double kProcessors = 132;
constexpr double kSumStart = 3, kSumBytes = 2e6;  // of matmul.wgsl: microseconds; bytes per microsecond
// Fewer leave most of a tile empty: with 32 they are a tenth faster than integers.
constexpr uint64_t kMinMatrixTokens = 32;

bool is_quantized(DType dtype) {
  return dtype == DType::kQ4_K || dtype == DType::kQ6_K || dtype == DType::kQ8_0 || dtype == DType::kMXFP4;
}

bool fits(const MatrixTile& tile, const Limits& limits) {
  return tile.threads <= limits.invocations && tile.bytes() <= limits.workgroup_bytes;
}

// x becomes f16, and weights are rounded to f16: where 8 bits of x would do, that does, too.
bool takes_matrices(const Capabilities& c, const MatmulShape& shape) {
  const bool subgroups_of_32 = c.subgroup_size == 32 && c.subgroup_min == 32 && c.subgroup_max == 32;
  return c.f16 && c.f16_matrices && subgroups_of_32 && fits(std::end(kMatrixTiles)[-1], c.limits) &&
         takes_int8(shape.dtype) && !shape.exact && !shape.gathered && shape.tokens >= kMinMatrixTokens;
}

MatmulKernel kernel_for(const Capabilities& c, const MatmulShape& shape) {
  if (takes_matrices(c, shape)) return MatmulKernel::kMatrix;
  const bool integers = c.int8_dot && !(c.int8_emulated && c.f16 && takes_int8(shape.dtype));
  return integers && is_quantized(shape.dtype) && !shape.exact ? MatmulKernel::kInt8 : MatmulKernel::kFloat;
}

// May the tile of kFloat hold weights as f16? Those that are f16 lose nothing, those of 4 and 6 bits nothing that
// counts.
bool may_hold_f16(const Capabilities& c, const MatmulShape& shape) {
  return c.f16 && !shape.gathered && (shape.dtype == DType::kF16 || (takes_int8(shape.dtype) && !shape.exact));
}
// It halves what passes through workgroup memory, which GPUs with Metal have little of; an H200 gains nothing.
bool holds_f16(const Capabilities& c, const MatmulShape& shape) { return c.int8_emulated && may_hold_f16(c, shape); }

bool fits(MatmulKernel kernel, const MatmulTile& tile, const Limits& limits) {
  // A thread brings in at most two pieces of W a step (matmul_int8_tile.wgsl).
  const bool fetchable = kernel == MatmulKernel::kFloat ||
                         (tile.thread_rows() <= tile.token_lanes && tile.thread_tokens() <= tile.row_lanes);
  return fetchable && tile.threads() <= limits.invocations && workgroup_bytes(kernel, tile) <= limits.workgroup_bytes;
}

uint64_t workgroups(const MatmulShape& shape, const MatmulTile& tile) {
  return uint64_t{div_up(shape.rows, tile.rows())} * div_up(shape.tokens, tile.tokens());
}

MatmulChoice make_choice(const MatrixTile& tile, const MatmulShape& shape, uint64_t splits) {
  MatmulChoice choice;
  choice.kernel = MatmulKernel::kMatrix;
  choice.tile_rows = tile.rows;
  choice.tile_tokens = tile.tokens;
  choice.splits = static_cast<uint32_t>(splits);
  choice.variant.snippets = {{"weights", std::string(kernel_name(shape.dtype))}, {"subgroup_tile", tile.subgroup_tile}};
  return choice;
}

MatmulChoice make_choice(MatmulKernel kernel, const MatmulTile& tile, const MatmulShape& shape, uint64_t splits,
                         bool f16) {
  MatmulChoice choice;
  choice.kernel = kernel;
  choice.tile_rows = tile.rows();
  choice.tile_tokens = tile.tokens();
  choice.splits = static_cast<uint32_t>(splits);
  const std::string type(kernel_name(shape.dtype));
  if (kernel == MatmulKernel::kInt8) {
    choice.variant.snippets = {{"thread_tile", tile.thread_tile}, {"matmul_int8", type}};
    choice.variant.constants = {{"row_lanes", tile.row_lanes},
                                {"token_lanes", tile.token_lanes},
                                {"buffers", tile.buffers},
                                {"prefetch", tile.prefetch ? 1 : 0},
                                {"magic", tile.magic ? 1 : 0}};
  } else {
    choice.variant.snippets = {{"weights", type}, {"thread_tile", tile.thread_tile}, {"matmul_w", f16 ? "f16" : "f32"}};
    choice.variant.constants = {
        {"row_lanes", tile.row_lanes}, {"token_lanes", tile.token_lanes}, {"vectors", shape.cols % 4 == 0 ? 1 : 0}};
  }
  return choice;
}

uint64_t max_splits(const MatmulShape& shape) {
  if (!shape.may_split) return 1;
  return std::clamp<uint64_t>(shape.cols / kMinSplitCols, 1, kMaxSplits);
}

double estimate(const MatrixTile& tile, const MatmulShape& shape, uint64_t splits) {
  const double workgroups =
      double{1} * div_up(shape.rows, tile.rows) * div_up(shape.tokens, tile.tokens) * static_cast<double>(splits);
  const double turns = std::max(1.0, std::ceil(workgroups / kProcessors) * tile.together);
  const double steps = div_up(div_up(shape.cols, 64), splits);
  const double sum =
      splits == 1
          ? 0
          : kSumStart + static_cast<double>(shape.rows * shape.tokens * (splits + 1) * sizeof(float)) / kSumBytes;
  return turns * (steps * tile.step + tile.start) + sum;
}

MatmulChoice choose_matrix(const Capabilities& capabilities, const MatmulShape& shape, uint64_t fixed_splits) {
  MatmulChoice best;
  double least = 0;
  for (const MatrixTile& tile : kMatrixTiles) {
    if (!fits(tile, capabilities.limits)) continue;
    for (uint64_t splits = 1; splits <= max_splits(shape); splits *= 2) {
      if (fixed_splits != 0 && splits != fixed_splits) continue;
      const double cost = estimate(tile, shape, splits);
      if (best.tile_rows != 0 && cost >= least) continue;
      least = cost;
      best = make_choice(tile, shape, splits);
    }
  }
  return best;
}

// What choices are made from: tiles that fit, for every number of parts that is of use.
void add_choices(std::vector<MatmulChoice>& choices, const Capabilities& capabilities, const MatmulShape& shape,
                 MatmulKernel kernel, std::span<const MatmulTile> tiles, bool f16) {
  for (const MatmulTile& tile : tiles) {
    if (!fits(kernel, tile, capabilities.limits)) continue;
    for (uint64_t splits = 1; splits <= max_splits(shape); splits *= 2) {
      const bool useful = splits == 1 || workgroups(shape, tile) * splits <= 3 * kEnoughWorkgroups;
      if (useful) choices.push_back(make_choice(kernel, tile, shape, splits, f16));
    }
  }
}

void add_matrix_choices(std::vector<MatmulChoice>& choices, const Capabilities& capabilities,
                        const MatmulShape& shape) {
  if (!takes_matrices(capabilities, shape)) return;
  for (const MatrixTile& tile : kMatrixTiles) {
    if (!fits(tile, capabilities.limits)) continue;
    for (uint64_t splits = 1; splits <= max_splits(shape); splits *= 2) {
      choices.push_back(make_choice(tile, shape, splits));
    }
  }
}

// Of the variants with the words of the wish the one most like what would be chosen: as many parts, then a tile as
// large. `shape` has the tokens by which sums are made.
std::optional<MatmulChoice> choose_wished(const Capabilities& capabilities, const MatmulShape& shape) {
  const std::string_view wish = wish_for(capabilities.kernels, "matmul");
  if (wish.empty()) return std::nullopt;
  Capabilities unwished = capabilities;
  unwished.kernels.clear();
  const MatmulChoice usual = choose_matmul(unwished, shape);
  if (names_variant(wish, usual.words())) return usual;
  const auto unlike = [&](const MatmulChoice& choice) {
    const auto area = [](const MatmulChoice& c) { return double{1} * c.tile_rows * c.tile_tokens; };
    return std::pair(choice.splits != usual.splits, std::fabs(std::log2(area(choice) / area(usual))));
  };
  std::optional<MatmulChoice> best;
  for (MatmulChoice& choice : matmul_variants(unwished, shape)) {
    if (!names_variant(wish, choice.words())) continue;
    if (!best || unlike(choice) < unlike(*best)) best = std::move(choice);
  }
  return best;
}

void need_tokens(const MatmulShape& shape) {
  if (shape.tokens == 0 || shape.rows == 0 || shape.cols == 0) {
    fail({.code = ErrorCode::kInternal,
          .what = "a matrix product of nothing",
          .where = "matmul",
          .got = fmt::format("{}x{}x{}", shape.tokens, shape.rows, shape.cols)});
  }
}

}  // namespace

std::string MatmulChoice::name() const {
  const char* name = kernel == MatmulKernel::kMatrix ? "matrix" : kernel == MatmulKernel::kInt8 ? "int8" : "f32";
  return fmt::format("{} {}x{} {} splits={}", name, tile_rows, tile_tokens, variant.name(), splits);
}

std::string MatmulChoice::words() const {
  const auto chosen = [&](std::string_view name) -> std::string {
    for (const auto& [snippet, choice] : variant.snippets) {
      if (snippet == name) return choice;
    }
    return "";
  };
  const char* name = kernel == MatmulKernel::kMatrix ? "matrix"
                     : kernel == MatmulKernel::kInt8 ? "int8"
                     : chosen("matmul_w") == "f16"   ? "f16"
                                                     : "f32";
  std::string text = fmt::format("{}.{}x{}.t{}", name, tile_rows, tile_tokens, tile_tokens);
  if (kernel != MatmulKernel::kMatrix) text += "." + chosen("thread_tile");
  for (const auto& [constant, value] : variant.constants) {
    if (constant == "buffers") text += fmt::format(".b{}", value);
  }
  return text + fmt::format(".s{}", splits);
}

MatmulChoice choose_matmul(const Capabilities& capabilities, const MatmulShape& shape) {
  need_tokens(shape);
  MatmulShape like = shape;
  like.like = 0;
  if (shape.like != 0) like.tokens = shape.like;
  if (const auto wished = choose_wished(capabilities, like)) return *wished;
  const uint64_t fixed_splits = shape.like != 0 ? choose_matmul(capabilities, like).splits : 0;
  const MatmulKernel kernel = kernel_for(capabilities, like);
  const bool f16 = holds_f16(capabilities, shape);
  if (kernel == MatmulKernel::kMatrix) return choose_matrix(capabilities, shape, fixed_splits);
  const std::span<const MatmulTile> tiles = kernel == MatmulKernel::kInt8 ? std::span<const MatmulTile>(kInt8Tiles)
                                                                          : std::span<const MatmulTile>(kFloatTiles);
  std::vector<MatmulTile> usable;
  for (MatmulTile tile : tiles) {
    if (tile.buffers == 2 &&
        workgroup_bytes(kernel, tile) > std::min(kMaxBufferedBytes, capabilities.limits.workgroup_bytes)) {
      tile.buffers = 1;
    }
    const bool wasteful = tile.tokens() >= 2 * shape.tokens;
    if (fits(kernel, tile, capabilities.limits) && !wasteful) usable.push_back(tile);
  }
  // Compiling costs more than computing where the GPU is the CPU.
  if (usable.empty() || capabilities.software) usable = {tiles.back()};
  if (fixed_splits != 0) {  // the largest tile with enough workgroups, or the last
    const auto enough = [&](const MatmulTile& tile) {
      return workgroups(shape, tile) * fixed_splits >= kEnoughWorkgroups;
    };
    const auto tile = std::find_if(usable.begin(), usable.end(), enough);
    return make_choice(kernel, tile == usable.end() ? usable.back() : *tile, shape, fixed_splits, f16);
  }
  // The largest tile with enough workgroups; failing that, the largest that has them in parts; failing that, the last.
  for (uint64_t splits : {uint64_t{1}, max_splits(shape)}) {
    for (const MatmulTile& tile : usable) {
      const uint64_t whole = workgroups(shape, tile);
      if (whole * splits >= kEnoughWorkgroups) {
        return make_choice(kernel, tile, shape, std::min<uint64_t>(splits, div_up(kEnoughWorkgroups, whole)), f16);
      }
    }
  }
  return make_choice(kernel, usable.back(), shape, max_splits(shape), f16);
}

std::vector<MatmulChoice> matmul_variants(const Capabilities& capabilities, const MatmulShape& shape) {
  need_tokens(shape);
  std::vector<MatmulChoice> choices;
  add_matrix_choices(choices, capabilities, shape);
  if (capabilities.int8_dot && is_quantized(shape.dtype) && !shape.exact) {
    add_choices(choices, capabilities, shape, MatmulKernel::kInt8, kInt8Tiles, false);
  }
  if (may_hold_f16(capabilities, shape))
    add_choices(choices, capabilities, shape, MatmulKernel::kFloat, kFloatTiles, true);
  add_choices(choices, capabilities, shape, MatmulKernel::kFloat, kFloatTiles, false);
  return choices;
}

std::vector<MatmulChoice> matmul_candidates(const Capabilities& capabilities, const MatmulShape& shape) {
  need_tokens(shape);
  std::vector<MatmulChoice> choices;
  const auto add = [&](MatmulKernel kernel, std::span<const MatmulTile> tiles, bool f16) {
    add_choices(choices, capabilities, shape, kernel, tiles, f16);
  };
  add_matrix_choices(choices, capabilities, shape);
  const bool integers = capabilities.int8_dot && is_quantized(shape.dtype) && !shape.exact;
  if (integers) {
    add(MatmulKernel::kInt8, kInt8Tiles, false);
    add(MatmulKernel::kInt8, kOtherInt8Tiles, false);
  } else {
    add(MatmulKernel::kFloat, kFloatTiles, false);
  }
  if (may_hold_f16(capabilities, shape)) add(MatmulKernel::kFloat, kFloatTiles, true);
  return choices;
}

}  // namespace doppler::gpu
