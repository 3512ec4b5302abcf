#include "gpu/ops/argmax.h"

#include "gpu/wgsl/argmax.h"
#include "gpu/wgsl/argmax_pick.h"

namespace doppler::gpu {
namespace {
constexpr uint32_t kThreads = 256;
constexpr uint32_t kPart = 8 * kThreads;  // logits a workgroup: 128 workgroups for 262144
}  // namespace

uint32_t argmax_pairs(uint32_t vocab) { return div_up(vocab, kPart); }

Variant choose_argmax(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

size_t record_argmax_parts(Recording& recording, const std::string& step, const BoundBuffer& logits,
                           const BoundBuffer& seen, const BoundBuffer& pairs, uint32_t vocab, float penalty) {
  const Capabilities& capabilities = recording.device().capabilities();
  return recording.dispatch<wgsl::Argmax>(step, choose_argmax(capabilities), {.vocab = vocab, .penalty = penalty},
                                          {.logits = logits, .seen = seen, .maxima = pairs},
                                          linear_grid(argmax_pairs(vocab), capabilities.limits));
}

size_t record_argmax_pick(Recording& recording, const std::string& step, const BoundBuffer& pairs, uint32_t pair_count,
                          const TokenBuffers& tokens, uint32_t vocab, uint32_t advance) {
  return recording.dispatch<wgsl::ArgmaxPick>(
      step, choose_argmax(recording.device().capabilities()), {.count = pair_count, .vocab = vocab, .advance = advance},
      {.maxima = pairs, .state = tokens.state, .out_tokens = tokens.out_tokens, .seen = tokens.seen}, {});
}

}  // namespace doppler::gpu
