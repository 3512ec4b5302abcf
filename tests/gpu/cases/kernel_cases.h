// Every kernel's cases, one list for three uses: the tests, `doppler test correctness`, and `doppler bench kernels`.
// The truth is computed here in double from the op's definition; the bound is derived from the kernel's arithmetic.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/webgpu/recording.h"

namespace doppler::gpu {

inline constexpr double kUlp = 0x1p-23;  // of values in [1, 2)

struct PreparedCase {
  std::unique_ptr<Recording> recording;
  Buffer out;                    // f32
  std::vector<double> expected;  // empty when prepared for measuring only
  std::vector<double> bound;     // allowed |got - expected|, an element
  double bytes = 0, flops = 0;   // of one submit
};

enum class CaseUse : uint8_t { kCheck, kMeasure };

struct KernelCase {
  std::string op, name;  // "matvec", "q4_k 100x1152"
  bool measure = false;  // a case for the benchmark rather than for the tests
  std::function<PreparedCase(Device&, CaseUse)> prepare;
  bool int8 = false;  // needs packed integer products
};

// All that a device with these capabilities can run.
std::vector<KernelCase> kernel_cases(const Capabilities& capabilities);

struct CheckResult {
  std::string variants;  // of the dispatches
  bool pass = false;
  size_t worst = 0;  // element with the largest |error| / bound
  double got = 0, expected = 0, bound = 0;
  double ratio = 0;  // of that error to its bound
};
CheckResult check_case(Device& device, const KernelCase& kernel_case);

struct MeasureResult {
  std::string variants;
  size_t dispatches = 0;        // of one submit
  double ns = 0;                // a dispatch, median of several submits
  double bytes = 0, flops = 0;  // a dispatch
  double gb_per_s() const { return ns > 0 ? bytes / ns : 0; }
  double gflop_per_s() const { return ns > 0 ? flops / ns : 0; }
};
MeasureResult measure_case(Device& device, const KernelCase& kernel_case);

// Bytes read plus bytes written, in GB/s, by the copy kernel on buffers larger than any cache.
double measure_copy_bandwidth(Device& device);

// --- for the files that list cases

class CaseRandom {
 public:
  explicit CaseRandom(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t bits();
  double uniform(double low, double high);
  std::vector<float> floats(size_t count, double low, double high);

 private:
  uint64_t state_;
};

Buffer upload_floats(Device& device, const std::string& label, const std::vector<float>& values);

void append_elementwise_cases(std::vector<KernelCase>& cases);
void append_norm_cases(std::vector<KernelCase>& cases);
void append_embed_cases(std::vector<KernelCase>& cases);
void append_matvec_cases(std::vector<KernelCase>& cases);
void append_project_cases(std::vector<KernelCase>& cases);
void append_expert_cases(std::vector<KernelCase>& cases);
void append_state_cases(std::vector<KernelCase>& cases);
void append_lora_cases(std::vector<KernelCase>& cases);

}  // namespace doppler::gpu
