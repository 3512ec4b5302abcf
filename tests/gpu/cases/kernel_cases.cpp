#include "gpu/cases/kernel_cases.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gpu/ops/elementwise.h"

#include "gpu/cases/attention_cases.h"
#include "gpu/cases/matmul_cases.h"

namespace doppler::gpu {
namespace {

std::string variants_of(const Recording& recording) {
  std::vector<std::string> seen;
  for (const Recording::Command& command : recording.commands()) {
    if (const auto* dispatch = std::get_if<Recording::Dispatch>(&command)) {
      if (std::find(seen.begin(), seen.end(), dispatch->kernel.variant()) == seen.end()) {
        seen.push_back(dispatch->kernel.variant());
      }
    }
  }
  std::string out;
  for (const std::string& name : seen) out += (out.empty() ? "" : "; ") + name;
  return out;
}

// GPU time of one repetition, the median of five runs of `times`. A GPU that was idle for a few milliseconds runs at a
// fraction of its clock and needs some hundred to reach it, so it is kept busy without a gap before the runs that
// count.
double median_ns(Device& device, Recording& recording, int times) {
  constexpr double kWarmNs = 3e8;
  double busy = device.time_ns(recording, times);
  if (!device.capabilities().software) {
    for (int i = 0; busy < kWarmNs; ++i) {
      device.submit(recording, times);
      // Now and then the real pace, which a warming clock changes; otherwise nothing waits.
      if (i % 16 == 15) busy += 17 * device.time_ns(recording, times);
    }
  }
  std::vector<double> runs;
  for (int i = 0; i < 5; ++i) runs.push_back(device.time_ns(recording, times) / times);
  std::sort(runs.begin(), runs.end());
  return runs[runs.size() / 2];
}

}  // namespace

uint64_t CaseRandom::bits() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_ * 0x2545f4914f6cdd1du;
}

double CaseRandom::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
}

std::vector<float> CaseRandom::floats(size_t count, double low, double high) {
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(uniform(low, high));
  return values;
}

Buffer upload_floats(Device& device, const std::string& label, const std::vector<float>& values) {
  Buffer buffer = device.create_buffer(label, values.size() * sizeof(float));
  write<float>(device, buffer, values);
  return buffer;
}

std::vector<KernelCase> kernel_cases(const Capabilities& capabilities) {
  std::vector<KernelCase> cases;
  append_elementwise_cases(cases);
  append_norm_cases(cases);
  append_embed_cases(cases);
  append_matvec_cases(cases);
  append_project_cases(cases);
  append_expert_cases(cases);
  append_state_cases(cases);
  append_lora_cases(cases);
  append_quantize_activations_cases(cases);
  append_matmul_cases(cases);
  append_rope_store_cases(cases);
  append_attention_cases(cases);
  append_token_cases(cases);
  std::erase_if(cases, [&](const KernelCase& c) { return c.int8 && !capabilities.int8_dot; });
  return cases;
}

CheckResult check_case(Device& device, const KernelCase& kernel_case) {
  PreparedCase prepared = kernel_case.prepare(device, CaseUse::kCheck);
  device.submit(*prepared.recording);
  const std::vector<float> got = read<float>(device, prepared.out, prepared.expected.size());
  CheckResult result;
  result.variants = variants_of(*prepared.recording);
  result.pass = !got.empty();
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - prepared.expected[i]);
    // Not <=, so that a NaN fails.
    const bool fine = error <= prepared.bound[i];
    const double ratio = fine                ? (error == 0 ? 0 : error / prepared.bound[i])
                         : std::isnan(error) ? 1e300
                                             : error / prepared.bound[i];
    if (!fine) result.pass = false;
    if (ratio > result.ratio || i == 0) {
      result.ratio = ratio;
      result.worst = i;
      result.got = static_cast<double>(got[i]);
      result.expected = prepared.expected[i];
      result.bound = prepared.bound[i];
    }
  }
  return result;
}

MeasureResult measure_case(Device& device, const KernelCase& kernel_case) {
  PreparedCase prepared = kernel_case.prepare(device, CaseUse::kMeasure);
  const double dispatches = static_cast<double>(prepared.recording->dispatches());
  MeasureResult result;
  result.variants = variants_of(*prepared.recording);
  result.dispatches = prepared.recording->dispatches();
  result.bytes = prepared.bytes / dispatches;
  result.flops = prepared.flops / dispatches;
  // Enough repetitions for a few milliseconds on a GPU; once where the "GPU" is the CPU.
  const double once = device.time_ns(*prepared.recording, 1);
  const int times = std::clamp(static_cast<int>(3e6 / std::max(once, 1.0)), 1, 50);
  result.ns = median_ns(device, *prepared.recording, times) / dispatches;
  return result;
}

double measure_copy_bandwidth(Device& device) {
  const Capabilities& capabilities = device.capabilities();
  const uint64_t bytes =
      std::min<uint64_t>(capabilities.software ? 32u << 20 : 512u << 20, capabilities.limits.max_binding_bytes);
  Buffer from = device.create_buffer("copy source", bytes), to = device.create_buffer("copy target", bytes);
  Recording recording(device, "copy bandwidth");
  record_copy(recording, "copy", from, to, bytes);
  return 2.0 * static_cast<double>(bytes) / median_ns(device, recording, capabilities.software ? 1 : 10);
}

}  // namespace doppler::gpu
