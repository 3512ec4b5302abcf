// How the rows of a decode projection are shared out: the constants of ops/lib/project.wgsl. Pure.
#pragma once

#include <cstdint>

#include "format/dtype.h"
#include "gpu/webgpu/capabilities.h"

namespace doppler::gpu {

// Of a large GPU: so many workgroups keep all of it busy.
inline constexpr uint64_t kMultiprocessors = 132;

struct Tiles {
  uint64_t lanes, groups, rows, bands, steps;

  uint64_t threads() const { return lanes * groups; }
  uint64_t rows_per_workgroup() const { return groups * rows * bands; }
};

uint64_t pieces_of(uint64_t cols);

// What a wish for "matvec", the products of decode, may name.
inline constexpr const char* kMatvecWords[] = {"int8", "float", "subgroup", "plain"};

// Does x become int8 for weights that take it so? Where the device has packed dot products, and nobody wished
// otherwise.
bool decodes_with_int8(const Capabilities& capabilities, DType weights);

// The one size that all subgroups have; 0 where they differ, there are none, or nobody wants them.
uint32_t one_subgroup_size(const Capabilities& capabilities);

// pairs: gate and up of an output meet in one team.
Tiles project_tiles(const Capabilities& capabilities, uint64_t rows, uint64_t cols, bool pairs);
// The same for results of gate and up that are left as integers, by the piece: rows_per_workgroup() is a multiple
// of 64.
Tiles piece_tiles(const Capabilities& capabilities, uint64_t cols);

// Quads of x a thread.
uint64_t turns_of(uint64_t cols, const Tiles& tiles);

// Workgroup memory: x (ops/lib/x.wgsl), the sums of teams and of the workgroup.
uint64_t project_workgroup_bytes(uint64_t cols, bool int8, const Tiles& tiles);

}  // namespace doppler::gpu
