#include "gpu/run/kernel_kinds.h"

#include <algorithm>

#include "gpu/ops/attention.h"
#include "gpu/ops/project_tiles.h"
#include "gpu/run/decode_program.h"
#include "gpu/run/step_program.h"

namespace doppler::gpu {
namespace {

void add_words(KernelKind& kind, const std::string& words) {
  if (std::find(kind.variants.begin(), kind.variants.end(), words) == kind.variants.end())
    kind.variants.push_back(words);
}

}  // namespace

std::vector<KernelKind> kernel_kinds(const GpuContext& context) {
  Capabilities capabilities = context.device.capabilities();
  capabilities.kernels.clear();
  KernelKind matmul{"matmul", {}}, matvec{"matvec", {}}, attention{"attention", {}},
      attention_decode{"attention_decode", {}}, decode{"decode", {"steps"}};
  bool takes_bytes = false;
  for (const Step& step : context.plan.steps) {
    if (std::holds_alternative<MatMul>(step.op)) {
      const Weight& weight = context.weights.matrix(step.weights[0].slot);
      takes_bytes = takes_bytes || decodes_with_int8(capabilities, weight.dtype);
      if (step.logits_only) continue;
      MatmulShape shape = matmul_shape(weight, kLikeTokens);
      shape.like = 0;
      add_words(matmul, choose_matmul(capabilities, shape).words());
      for (const MatmulChoice& choice : matmul_variants(capabilities, shape)) add_words(matmul, choice.words());
    } else if (const auto* op = std::get_if<Attention>(&step.op)) {
      const AttentionShape shape = context.kv.layers()[static_cast<size_t>(op->layer)].shape;
      for (const std::string& words : attention_variants(capabilities, shape)) add_words(attention, words);
      for (const std::string& words : attention_decode_variants(capabilities, shape))
        add_words(attention_decode, words);
    }
  }
  for (const char* x : {"int8", "float"}) {
    if (x == std::string_view("int8") && !takes_bytes) continue;
    for (const char* sum : {"subgroup", "plain"}) {
      if (sum == std::string_view("subgroup") && one_subgroup_size(capabilities) == 0) continue;
      add_words(matvec, std::string(x) + "." + sum);
    }
  }
  if (DecodeProgram::possible(context)) decode.variants.insert(decode.variants.begin(), "fused");
  std::vector<KernelKind> kinds;
  for (KernelKind& kind : std::vector<KernelKind>{matmul, matvec, attention, attention_decode, decode}) {
    if (!kind.variants.empty()) kinds.push_back(std::move(kind));
  }
  return kinds;
}

}  // namespace doppler::gpu
