#include "gpu/ops/sample.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "gpu/wgsl/argmax.h"
#include "gpu/wgsl/sample.h"
#include "gpu/wgsl/sample_pick.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kPart = 8 * kThreads;  // logits of a workgroup: 128 workgroups for 262144
constexpr uint32_t kBins = 1024;          // as in ops/sample.wgsl
constexpr float kNoMinP = 1000;           // deeper than any candidate
constexpr uint32_t kMaxVocab = 1u << 19;  // sums of fixed-point weights stay in 32 bits

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
                          const TokenBuffers& tokens, uint32_t advance) {
  return recording.dispatch<wgsl::ArgmaxPick>(
      step, choose_argmax(recording.device().capabilities()), {.count = pair_count, .advance = advance},
      {.maxima = pairs, .state = tokens.state, .out_tokens = tokens.out_tokens, .seen = tokens.seen}, {});
}

void record_batch_pick(Recording& recording, const std::string& step, const BoundBuffer& state,
                       const BoundBuffer& pairs, uint32_t pair_count, const BoundBuffer& out_tokens, uint32_t columns) {
  recording.dispatch<wgsl::BatchPick>(step, choose_argmax(recording.device().capabilities()), {.count = pair_count},
                                      {.state = state, .maxima = pairs, .out_tokens = out_tokens}, {columns, 1, 1});
}

uint64_t sample_bin_bytes() { return uint64_t{4} * 4 * kBins; }
uint64_t sample_list_bytes(uint32_t vocab) { return uint64_t{8} * vocab; }

Variant choose_sample(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

size_t record_sample(Recording& recording, const std::string& step, const SampleOptions& options,
                     const SampleBuffers& buffers, uint32_t pair_count, uint32_t vocab, uint32_t advance) {
  if (!(options.temperature > 0)) {
    fail({.code = ErrorCode::kInternal,
          .what = "sampling needs a temperature above 0",
          .where = step,
          .got = fmt::format("{}", options.temperature),
          .todo = "use the greedy choice"});
  }
  if (vocab > kMaxVocab) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the vocabulary is too large to sample from on the GPU",
          .where = step,
          .expected = fmt::format("up to {}", kMaxVocab),
          .got = fmt::format("{}", vocab),
          .todo = "sample on the CPU"});
  }
  const Capabilities& capabilities = recording.device().capabilities();
  const Variant variant = choose_sample(capabilities);
  const Grid grid = linear_grid(div_up(vocab, kPart), capabilities.limits);
  const float inverse = static_cast<float>(1.0 / static_cast<double>(options.temperature));
  const float min_p_depth =
      options.min_p > 0 ? static_cast<float>(-std::log(static_cast<double>(options.min_p))) : kNoMinP;
  const size_t first = recording.dispatch<wgsl::SampleHistogram>(
      step + ".histogram", variant,
      {.vocab = vocab,
       .pairs = pair_count,
       .penalty = options.penalty,
       .inverse_temperature = inverse,
       .min_p_depth = min_p_depth},
      {.logits = buffers.logits, .seen = buffers.tokens.seen, .maxima = buffers.pairs, .bins = buffers.bins}, grid);
  recording.dispatch<wgsl::SampleList>(step + ".list", variant,
                                       {.vocab = vocab,
                                        .pairs = pair_count,
                                        .top_k = options.top_k,
                                        .penalty = options.penalty,
                                        .inverse_temperature = inverse,
                                        .min_p_depth = min_p_depth},
                                       {.logits = buffers.logits,
                                        .seen = buffers.tokens.seen,
                                        .maxima = buffers.pairs,
                                        .bins = buffers.bins,
                                        .candidates = buffers.list},
                                       grid);
  recording.dispatch<wgsl::SamplePick>(step + ".pick", variant,
                                       {.vocab = vocab,
                                        .pairs = pair_count,
                                        .top_k = options.top_k,
                                        .advance = advance,
                                        .inverse_temperature = inverse,
                                        .top_p = options.top_p,
                                        .min_p_depth = min_p_depth,
                                        .seed_low = static_cast<uint32_t>(options.seed),
                                        .seed_high = static_cast<uint32_t>(options.seed >> 32)},
                                       {.maxima = buffers.pairs,
                                        .bins = buffers.bins,
                                        .candidates = buffers.list,
                                        .state = buffers.tokens.state,
                                        .out_tokens = buffers.tokens.out_tokens,
                                        .seen = buffers.tokens.seen},
                                       {});
  return first;
}

}  // namespace doppler::gpu
