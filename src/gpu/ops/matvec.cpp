#include "gpu/ops/matvec.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "gpu/wgsl/matvec.h"

namespace doppler::gpu {
namespace {

constexpr uint64_t kMaxLanes = 256;          // every device allows as many threads in a workgroup
constexpr uint64_t kTeamThreads = 144;       // teams side by side up to here; larger workgroups measured slower
constexpr uint64_t kSharedBytes = 16384;     // every device allows as much workgroup memory
constexpr uint64_t kEnoughWorkgroups = 200;  // more than one for every multiprocessor of a large GPU

bool is_quantised(DType type) { return type == DType::kQ4_K || type == DType::kQ6_K || type == DType::kQ8_0; }

uint32_t constant(const Variant& variant, std::string_view name) {
  for (const auto& [key, value] : variant.constants) {
    if (key == name) return static_cast<uint32_t>(value);
  }
  fail({.code = ErrorCode::kInternal,
        .what = fmt::format("variant without {}", name),
        .where = "matvec",
        .got = variant.name()});
}

}  // namespace

Variant choose_matvec(const Capabilities& capabilities, const MatvecShape& shape) {
  const uint64_t pieces = std::max<uint32_t>(1, div_up(shape.cols, kPiece));
  const uint64_t turns = div_up(pieces, kMaxLanes);
  const uint64_t lanes = div_up(pieces, turns);
  uint64_t groups = std::max<uint64_t>(1, kTeamThreads / lanes);
  while (groups > 1 && shape.rows / groups < kEnoughWorkgroups) groups /= 2;
  // Going down several rows reuses x and keeps more loads in flight, as long as enough workgroups remain.
  constexpr uint64_t kMaxSplit = 16;
  uint64_t rows = 16;
  while (rows > 1 &&
         (shape.rows / (groups * rows) < kEnoughWorkgroups || 4 * (lanes + kMaxSplit) * groups * rows > kSharedBytes)) {
    rows /= 2;
  }
  uint64_t split = 1;
  while (split < kMaxSplit && split * 2 * rows <= lanes) split *= 2;
  const bool int8 = !shape.exact && capabilities.int8_dot && is_quantised(shape.dtype) &&
                    !names_variant("float", wish_for(capabilities.kernels, "matvec"));
  const std::string dtype(kernel_name(shape.dtype));
  return {{{"weights", dtype}, {"matvec_x", int8 ? "int8" : "float"}, {"int_dots", int8 ? dtype : "none"}},
          {{"lanes", static_cast<double>(lanes)},
           {"groups", static_cast<double>(groups)},
           {"rows", static_cast<double>(rows)},
           {"split", static_cast<double>(split)},
           {"vectors", shape.cols % 4 == 0 ? 1 : 0}}};
}

void record_matvec(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                   const BoundBuffer& bias, const BoundBuffer& y, uint32_t columns) {
  const MatvecShape shape = {weight.dtype, static_cast<uint64_t>(weight.rows), static_cast<uint64_t>(weight.cols)};
  record_matvec(recording, step, choose_matvec(recording.device().capabilities(), shape), weight, x, bias, y, columns);
}

void record_matvec(Recording& recording, const std::string& step, const Variant& variant, const Weight& weight,
                   const BoundBuffer& x, const BoundBuffer& bias, const BoundBuffer& y, uint32_t columns) {
  const Limits& limits = recording.device().capabilities().limits;
  const uint64_t rows_per_workgroup = uint64_t{constant(variant, "groups")} * constant(variant, "rows");
  for (const WeightPart& part : weight.parts) {
    Grid grid = linear_grid(div_up(static_cast<uint64_t>(part.rows), rows_per_workgroup), limits);
    grid.z = columns;
    recording.dispatch<wgsl::Matvec>(step, variant,
                                     {.cols = static_cast<uint32_t>(weight.cols),
                                      .pieces = div_up(static_cast<uint64_t>(weight.cols), kPiece),
                                      .stride = static_cast<uint32_t>(weight.stride / 16),
                                      .rows = static_cast<uint32_t>(part.rows),
                                      .first_row = static_cast<uint32_t>(part.first_row),
                                      .out_width = static_cast<uint32_t>(weight.rows),
                                      .bias = bias.buffer ? 1u : 0u},
                                     {.x = x,
                                      .w2 = part.bound(weight.stride),
                                      .w4 = part.bound(weight.stride),
                                      .bias = bias.buffer ? bias : x,
                                      .y = y},
                                     grid);
  }
}

}  // namespace doppler::gpu
