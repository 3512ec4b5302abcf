#include <fmt/format.h>

#include <bit>

#include "gpu/cases/attention_cases.h"
#include "gpu/ops/attention.h"
#include "gpu/ops/sample.h"

namespace doppler::gpu {
namespace {

struct TokenInputs {
  std::vector<float> logits;
  SampleBuffers buffers;
  Buffer out_tokens;
};

TokenInputs token_inputs(Device& device, uint32_t vocab) {
  TokenInputs in;
  // About normal, so that the likeliest few stand apart as a model's do.
  CaseRandom random(vocab);
  for (int i = 0; i < 6; ++i) {
    const std::vector<float> part = random.floats(vocab, -5, 5);
    in.logits.resize(vocab);
    for (uint32_t j = 0; j < vocab; ++j) in.logits[j] += part[j];
  }
  in.out_tokens = device.create_buffer("out_tokens", 16);
  in.buffers = {upload_floats(device, "logits", in.logits),
                device.create_buffer("pairs", uint64_t{8} * argmax_pairs(vocab)),
                device.create_buffer("bins", sample_bin_bytes()),
                device.create_buffer("list", sample_list_bytes(vocab)),
                {device.create_buffer("state", sizeof(DecodeState)), in.out_tokens,
                 device.create_buffer("seen", uint64_t{4} * div_up(vocab, 32))}};
  return in;
}

PreparedCase prepare_argmax(Device& device, CaseUse use, uint32_t vocab) {
  const TokenInputs in = token_inputs(device, vocab);
  const SampleBuffers& b = in.buffers;
  PreparedCase p;
  p.out = in.out_tokens;
  p.recording = std::make_unique<Recording>(device, "argmax");
  record_argmax_parts(*p.recording, "parts", b.logits, b.tokens.seen, b.pairs, vocab, 1);
  record_argmax_pick(*p.recording, "pick", b.pairs, argmax_pairs(vocab), b.tokens, 1);
  p.bytes = 4.0 * vocab;
  if (use != CaseUse::kCheck) return p;
  uint32_t best = 0;
  for (uint32_t i = 1; i < vocab; ++i) {
    if (in.logits[i] > in.logits[best]) best = i;
  }
  // The token's bits, read as a float, must be the same.
  p.expected.push_back(static_cast<double>(std::bit_cast<float>(best)));
  p.bound.push_back(0);
  return p;
}

PreparedCase prepare_sample(Device& device, uint32_t vocab, const SampleOptions& options) {
  const TokenInputs in = token_inputs(device, vocab);
  const SampleBuffers& b = in.buffers;
  PreparedCase p;
  p.out = in.out_tokens;
  p.recording = std::make_unique<Recording>(device, "sample");
  record_argmax_parts(*p.recording, "max", b.logits, b.tokens.seen, b.pairs, vocab, options.penalty);
  record_sample(*p.recording, "sample", options, b, argmax_pairs(vocab), vocab, 1);
  p.bytes = 3 * 4.0 * vocab;
  return p;
}

}  // namespace

void append_token_cases(std::vector<KernelCase>& cases) {
  const auto argmax = [&](uint32_t vocab, bool measure) {
    cases.push_back({"argmax", fmt::format("{}", vocab), measure,
                     [=](Device& device, CaseUse use) { return prepare_argmax(device, use, vocab); }});
  };
  for (const uint32_t vocab : {1u, 255u, 256u, 2047u, 2049u, 32000u, 70001u}) argmax(vocab, false);
  argmax(262144, true);
  // Draws are checked by the tests, against the CPU's sampler.
  const auto sample = [&](const std::string& name, const SampleOptions& options) {
    cases.push_back({"sample", "262144 " + name, true,
                     [=](Device& device, CaseUse) { return prepare_sample(device, 262144, options); }});
  };
  sample("plain", {.temperature = 1, .seed = 1});
  sample("top-k 64 top-p 0.95", {.temperature = 1, .top_k = 64, .top_p = 0.95f, .seed = 1});
  sample("top-p 0.9 min-p 0.05", {.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.05f, .seed = 1});
}

}  // namespace doppler::gpu
