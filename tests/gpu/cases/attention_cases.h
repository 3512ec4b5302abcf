// Cases of the kernels around attention and of the choice of a token.
#pragma once

#include "gpu/cases/kernel_cases.h"

namespace doppler::gpu {

void append_attention_cases(std::vector<KernelCase>& cases);  // attention_prefill, attention_decode, attention_fused
void append_rope_store_cases(std::vector<KernelCase>& cases);
void append_token_cases(std::vector<KernelCase>& cases);  // argmax, sample

}  // namespace doppler::gpu
