// Runs a Plan on the CPU's vector units, from quantised weights. See DOPPLER_CPU in isa.h for the instruction set.
#pragma once

#include "model/executor.h"

namespace doppler {

namespace cpu {
struct Kernels;
}

// Weights' bytes must outlive the executor (they are mapped; what the instruction set wants in another order is copied
// as well). Fails when the numbers of `options` or the tensors cannot be used.
std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options);

// The choices that are otherwise the executor's own.
struct CpuTuning {
  const cpu::Kernels* kernels = nullptr;  // null: choose_kernels()
  bool pack = true;                       // false: of the kernels those that read weights where they lie
  bool fuse = true;
  int min_gemm_tokens_packed = 0;  // prompts shorter than this are computed as decode does; 0: that of the kernels
};
std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, const Plan& plan, const Weights& weights,
                                            const ExecutorOptions& options, const CpuTuning& tuning);

}  // namespace doppler
