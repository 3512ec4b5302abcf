// Which instruction set runs: the best the machine has, or the one DOPPLER_CPU names.
#pragma once

#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "model/kernel_wishes.h"

namespace doppler::cpu {

// Those this machine can run, the slowest ("portable") first. "avx512" means F, BW, DQ, VL, VBMI, VNNI and GFNI,
// "amx" its tiles of bytes as well.
std::vector<const Kernels*> available_kernels();

// The best available, or the one named by the environment variable DOPPLER_CPU; fails if that is unknown or
// unavailable here.
const Kernels& choose_kernels();
const Kernels& choose_kernels(const std::string& name);

// What wishes may name: for every kind, and for all of them ("all"), an instruction set that this machine can run.
std::vector<KernelKind> kernel_kinds();

// `base`, with the functions of the kinds that are wished for in place of its own. The tables mean the same, so any
// may stand beside any other. The wishes have been checked.
Kernels mixed_kernels(const Kernels& base, const KernelWishes& wishes);

// The best of those that read weights where they lie, whatever DOPPLER_CPU says.
const Kernels& unpacked_kernels();

}  // namespace doppler::cpu
