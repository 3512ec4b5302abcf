// Which kernel, tile and split a matrix product takes.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "gpu/matmul.h"
#include "gpu/matmul_tile.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kEnoughWorkgroups = 264;  // two a processor on the largest GPUs of today
constexpr uint64_t kMostSplits = 4;
constexpr uint64_t kLeastSplitCols = 512;           // of one part: less does not pay for adding the parts
constexpr uint32_t kMostBufferedBytes = 32u << 10;  // of workgroup memory for two buffers

// From the largest to the smallest: large tiles read less, small ones keep more processors busy. Lanes and shares are
// powers of two. The last of each list fits every device and compiles fastest.
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

bool is_quantized(DType dtype) {
  return dtype == DType::kQ4_K || dtype == DType::kQ6_K || dtype == DType::kQ8_0 || dtype == DType::kMXFP4;
}

MatmulKernel kernel_for(const Capabilities& capabilities, const MatmulShape& shape) {
  return capabilities.int8_dot && is_quantized(shape.dtype) && !shape.exact ? MatmulKernel::kInt8
                                                                            : MatmulKernel::kFloat;
}

bool fits(MatmulKernel kernel, const MatmulTile& tile, const Limits& limits) {
  // A thread brings in at most two pieces of W a step (matmul_int8_tile.wgsl).
  const bool fetchable = kernel == MatmulKernel::kFloat ||
                         (tile.thread_rows() <= tile.token_lanes && tile.thread_tokens() <= tile.row_lanes);
  return fetchable && tile.threads() <= limits.invocations && workgroup_bytes(kernel, tile) <= limits.workgroup_bytes;
}

uint64_t workgroups(const MatmulShape& shape, const MatmulTile& tile) {
  const uint64_t rows = tile.rows() / (shape.glu ? 2 : 1);
  return uint64_t{div_up(shape.rows, rows)} * div_up(shape.tokens, tile.tokens());
}

MatmulChoice make_choice(MatmulKernel kernel, const MatmulTile& tile, const MatmulShape& shape, uint64_t splits) {
  MatmulChoice choice;
  choice.kernel = kernel;
  choice.tile_rows = tile.rows() / (shape.glu ? 2 : 1);
  choice.tile_tokens = tile.tokens();
  choice.splits = static_cast<uint32_t>(splits);
  const std::string type(kernel_name(shape.dtype));
  if (kernel == MatmulKernel::kInt8) {
    choice.variant.slots = {
        {"matmul_share", tile.share}, {"matmul_int8", type}, {"matmul_out", shape.glu ? "glu" : "plain"}};
    choice.variant.constants = {{"row_lanes", tile.row_lanes},
                                {"token_lanes", tile.token_lanes},
                                {"buffers", tile.buffers},
                                {"prefetch", tile.prefetch ? 1 : 0},
                                {"magic", tile.magic ? 1 : 0}};
  } else {
    choice.variant.slots = {{"weights", type}, {"matmul_share", tile.share}};
    choice.variant.constants = {
        {"row_lanes", tile.row_lanes}, {"token_lanes", tile.token_lanes}, {"vectors", shape.cols % 4 == 0 ? 1 : 0}};
  }
  return choice;
}

uint64_t most_splits(const MatmulShape& shape) {
  if (!shape.may_split || shape.glu) return 1;
  return std::clamp<uint64_t>(shape.cols / kLeastSplitCols, 1, kMostSplits);
}

void need_tokens(const MatmulShape& shape) {
  if (shape.tokens == 0 || shape.rows == 0 || shape.cols == 0) {
    fail({ErrorCode::kInternal, "a matrix product of nothing", "matmul", "",
          fmt::format("{}x{}x{}", shape.tokens, shape.rows, shape.cols), ""});
  }
}

}  // namespace

std::string MatmulChoice::name() const {
  return fmt::format("{} {}x{} {} splits={}", kernel == MatmulKernel::kInt8 ? "int8" : "f32", tile_rows, tile_tokens,
                     variant.name(), splits);
}

uint32_t workgroup_bytes(MatmulKernel kernel, const MatmulTile& tile) {
  const uint32_t lines = tile.rows() + tile.tokens();
  // 64 columns as bytes with two pairs of factors, or 32 as floats.
  return kernel == MatmulKernel::kInt8 ? lines * (64 + 16) * tile.buffers : lines * 128;
}

bool gated_matmul_available(const Capabilities& capabilities, const MatmulShape& shape) {
  return kernel_for(capabilities, shape) == MatmulKernel::kInt8;
}

MatmulChoice choose_matmul(const Capabilities& capabilities, const MatmulShape& shape) {
  need_tokens(shape);
  const MatmulKernel kernel = kernel_for(capabilities, shape);
  if (shape.glu && kernel != MatmulKernel::kInt8) {
    fail({ErrorCode::kInternal, "no gated matrix product for this type and device", "matmul", "",
          std::string(name_of(shape.dtype)), ""});
  }
  const std::span<const MatmulTile> tiles = kernel == MatmulKernel::kInt8 ? std::span<const MatmulTile>(kInt8Tiles)
                                                                          : std::span<const MatmulTile>(kFloatTiles);
  std::vector<MatmulTile> usable;
  for (MatmulTile tile : tiles) {
    if (tile.buffers == 2 &&
        workgroup_bytes(kernel, tile) > std::min(kMostBufferedBytes, capabilities.limits.workgroup_bytes)) {
      tile.buffers = 1;
    }
    const bool wasteful = tile.tokens() >= 2 * shape.tokens;
    if (fits(kernel, tile, capabilities.limits) && !wasteful) usable.push_back(tile);
  }
  // Compiling costs more than computing where the GPU is the CPU.
  if (usable.empty() || capabilities.software) usable = {tiles.back()};
  // The largest tile with enough workgroups; failing that, the largest that has them in parts; failing that, the last.
  for (uint64_t splits : {uint64_t{1}, most_splits(shape)}) {
    for (const MatmulTile& tile : usable) {
      const uint64_t whole = workgroups(shape, tile);
      if (whole * splits >= kEnoughWorkgroups) {
        return make_choice(kernel, tile, shape, std::min<uint64_t>(splits, div_up(kEnoughWorkgroups, whole)));
      }
    }
  }
  return make_choice(kernel, usable.back(), shape, most_splits(shape));
}

std::vector<MatmulChoice> matmul_candidates(const Capabilities& capabilities, const MatmulShape& shape) {
  need_tokens(shape);
  const MatmulKernel kernel = kernel_for(capabilities, shape);
  std::vector<MatmulTile> tiles;
  if (kernel == MatmulKernel::kInt8) {
    tiles.assign(std::begin(kInt8Tiles), std::end(kInt8Tiles));
    tiles.insert(tiles.end(), std::begin(kOtherInt8Tiles), std::end(kOtherInt8Tiles));
  } else {
    tiles.assign(std::begin(kFloatTiles), std::end(kFloatTiles));
  }
  std::vector<MatmulChoice> choices;
  for (const MatmulTile& tile : tiles) {
    if (!fits(kernel, tile, capabilities.limits)) continue;
    for (uint64_t splits = 1; splits <= most_splits(shape); splits *= 2) {
      const bool useful = splits == 1 || workgroups(shape, tile) * splits <= 3 * kEnoughWorkgroups;
      if (useful) choices.push_back(make_choice(kernel, tile, shape, splits));
    }
  }
  return choices;
}

}  // namespace doppler::gpu
