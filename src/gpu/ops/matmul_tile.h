// The tile of a workgroup of the matrix product: lanes × a thread's share (ops/lib/matmul_share.*.wgsl).
#pragma once

#include <cstdint>

#include "gpu/ops/matmul.h"

namespace doppler::gpu {

struct MatmulTile {
  const char* share;  // "r8t4": 8 rows by 4 tokens a thread
  uint32_t row_lanes, token_lanes;
  uint32_t buffers = 1;  // these three: kInt8 only, see matmul_int8_tile.wgsl
  bool prefetch = true;
  bool magic = true;

  constexpr uint32_t thread_rows() const { return static_cast<uint32_t>(share[1] - '0'); }
  constexpr uint32_t thread_tokens() const { return static_cast<uint32_t>(share[3] - '0'); }
  constexpr uint32_t rows() const { return row_lanes * thread_rows(); }
  constexpr uint32_t tokens() const { return token_lanes * thread_tokens(); }
  constexpr uint32_t threads() const { return row_lanes * token_lanes; }
};

// Bytes of workgroup memory.
uint32_t workgroup_bytes(MatmulKernel kernel, const MatmulTile& tile);

}  // namespace doppler::gpu
