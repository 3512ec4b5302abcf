// The projections of decode: one token's W · x with what comes before and after it in the same dispatch. Made for
// latency; a prefill of many tokens belongs to matmul.h.
#pragma once

#include <optional>

#include "gpu/ops/attention.h"
#include "gpu/ops/matvec.h"
#include "gpu/ops/weight.h"
#include "gpu/webgpu/recording.h"
#include "model/plan.h"

namespace doppler::gpu {

// What happens to W · x before it is stored.
struct Epilogue {
  BoundBuffer bias;                      // f32 [rows of W], or none
  float softcap = 0;                     // 0: none
  float scale = 1;                       // of W · x, by record_project_norm() only
  std::optional<Activation> activation;  // W is gate over up (upload_joined): a(gate) · up is stored
  uint32_t first_row = 0;                // where in y the first row of W lands
  bool int8 = false;                     // y is left as int8 (ops/lib/project_out.wgsl), for a stored x
  bool best = false;                     // y is (sort key, row) of the best row of each workgroup, as in sample.h
  uint32_t first_pair = 0;               // where in y the first of these lands
};

// r = x (+ branch, or + its norm), kept for later; W · norm(r) is what this projection computes.
struct ResidualNorm {
  BoundBuffer x, branch;     // f32 [cols]; branch may be none
  BoundBuffer norms;         // f32 [cols] weights of the norm of r; then [cols] of the branch's norm, if it has one
  bool branch_norm = false;  // norm(branch) is added, not branch
  BoundBuffer r;             // f32 [cols]: where r goes
  bool keep = true;          // false: r is not stored; the buffer must be there all the same
  float eps = 0, offset = 0;
  float branch_scale = 1;  // of what is added
};

// Can these kernels do it on this device? If not, the unfused steps must.
bool can_project(const Capabilities& capabilities, const MatvecShape& shape);

Variant choose_project(const Capabilities& capabilities, const MatvecShape& shape, const Epilogue& epilogue);

void record_project(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                    const Epilogue& epilogue, const BoundBuffer& y);
// x was left by a projection with Epilogue::int8.
bool can_project_stored(const Capabilities& capabilities, const MatvecShape& shape);
void record_project_stored(Recording& recording, const std::string& step, const Weight& weight, const BoundBuffer& x,
                           const Epilogue& epilogue, const BoundBuffer& y);
void record_project_norm(Recording& recording, const std::string& step, const Weight& weight, const ResidualNorm& input,
                         const Epilogue& epilogue, const BoundBuffer& y);
// Pairs that record_project_norm leaves with Epilogue::best.
uint32_t best_pairs(const Capabilities& capabilities, const Weight& weight);

// x is the attention that record_attention_fused() or record_attention_decode() left in splits.
struct SplitAttention {
  AttentionShape shape;
  BoundBuffer state, partials;
  uint32_t splits = 0;
};
void record_project_merge(Recording& recording, const std::string& step, const Weight& weight,
                          const SplitAttention& input, const Epilogue& epilogue, const BoundBuffer& y);

// The same for tokens of many sequences, a column each: first x of every column is made ready, then one pass over W
// serves all of them. A column's numbers are those of the functions above, bit for bit. The state says how many columns
// there are and where they stand (KvPool::show_columns); a grid has room for `most`.
struct BatchColumns {
  BoundBuffer state;
  uint32_t most = 0;
  bool last = false;  // of the columns those that make logits, which become the first
};
// What record_project_batch() takes: batch_x_bytes() a column, and the factors of norms, or none.
struct BatchX {
  BoundBuffer values, factors;
};
uint64_t batch_x_bytes(const Capabilities& capabilities, const Weight& weight);

// x, branch and r of `input` are [column][cols].
void record_batch_norm(Recording& recording, const std::string& step, const Weight& weight, const ResidualNorm& input,
                       const Epilogue& epilogue, const BatchColumns& columns, const BatchX& x);
void record_batch_merge(Recording& recording, const std::string& step, const Weight& weight,
                        const SplitAttention& input, const BatchColumns& columns, const BatchX& x);
// Of values that are there as floats [column][cols]. Returns what to multiply: `x`, or the values themselves.
BatchX record_batch_values(Recording& recording, const std::string& step, const Weight& weight,
                           const BoundBuffer& values, const BatchColumns& columns, const BatchX& x);
// width: of a column of y, in results or in pairs. Epilogue::int8 is not looked at, and neither is its scale.
void record_project_batch(Recording& recording, const std::string& step, const Weight& weight, const BatchX& x,
                          const Epilogue& epilogue, const BatchColumns& columns, uint32_t width, const BoundBuffer& y);
// Pairs that record_project_batch leaves in a column with Epilogue::best.
uint32_t batch_pairs(const Capabilities& capabilities, const Weight& weight, const BatchColumns& columns);

}  // namespace doppler::gpu
