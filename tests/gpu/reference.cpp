// The truths that GPU kernels are held to, compiled into this program: plain operations and the CPU's sampler.
#include "engine/sampler.cpp"  // NOLINT
#include "ref/ops.cpp"         // NOLINT
