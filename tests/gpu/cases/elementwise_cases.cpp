// Cases of add, copy, softcap, scale and glu.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/cases/kernel_cases.h"
#include "gpu/ops/elementwise.h"

namespace doppler::gpu {
namespace {

PreparedCase prepare_add(Device& device, CaseUse use, size_t count, float scale) {
  CaseRandom random(count);
  const std::vector<float> a = random.floats(count, -20000, 20000), b = random.floats(count, -20, 20);
  PreparedCase p;
  p.out = device.create_buffer("out", count * 4);
  p.recording = std::make_unique<Recording>(device, "add");
  record_add(*p.recording, "add", upload_floats(device, "a", a), upload_floats(device, "b", b), p.out, count, scale);
  p.bytes = 12.0 * static_cast<double>(count);
  p.flops = static_cast<double>(count);
  if (use == CaseUse::kCheck) {
    for (size_t i = 0; i < count; ++i) {
      const double added = static_cast<double>(scale) * static_cast<double>(b[i]);
      p.expected.push_back(static_cast<double>(a[i]) + added);
      // One rounding, and one of the product.
      p.bound.push_back(0.5 * kUlp * (std::abs(p.expected[i]) + (scale == 1 ? 0 : std::abs(added))));
    }
  }
  return p;
}

PreparedCase prepare_copy(Device& device, CaseUse use, size_t count) {
  CaseRandom random(count);
  const std::vector<float> a = random.floats(count, -1, 1);
  PreparedCase p;
  p.out = device.create_buffer("out", count * 4);
  p.recording = std::make_unique<Recording>(device, "copy");
  record_copy(*p.recording, "copy", upload_floats(device, "a", a), p.out, count * 4);
  p.bytes = 8.0 * static_cast<double>(count);
  if (use == CaseUse::kCheck) {
    p.expected.assign(a.begin(), a.end());
    p.bound.assign(count, 0);
  }
  return p;
}

PreparedCase prepare_softcap(Device& device, CaseUse use, size_t count, float cap) {
  CaseRandom random(count);
  const std::vector<float> x = random.floats(count, -4 * static_cast<double>(cap), 4 * static_cast<double>(cap));
  PreparedCase p;
  p.out = device.create_buffer("out", count * 4);
  p.recording = std::make_unique<Recording>(device, "softcap");
  record_softcap(*p.recording, "softcap", upload_floats(device, "x", x), p.out, count, cap);
  p.bytes = 8.0 * static_cast<double>(count);
  p.flops = 4.0 * static_cast<double>(count);
  if (use == CaseUse::kCheck) {
    for (const float v : x) {
      const double capped = static_cast<double>(cap), argument = static_cast<double>(v) / capped;
      p.expected.push_back(capped * std::tanh(argument));
      // WGSL's tanh is off by 1e-5, the division by 2.5 ulp (the slope is at most 1), and the product rounds once.
      p.bound.push_back(capped * (1e-5 + 2.5 * kUlp * std::abs(argument) + kUlp));
    }
  }
  return p;
}

PreparedCase prepare_scale(Device& device, CaseUse use, const Scale& op, uint32_t rows, uint32_t width) {
  CaseRandom random(rows * 31 + width);
  const size_t count = size_t{rows} * width;
  constexpr uint32_t kFirst = 29;  // so that positions cross ⌊position / length⌋
  const std::vector<float> x = random.floats(count, -30, 30);
  const Buffer state = device.create_buffer("state", 16);
  write<uint32_t>(device, state, std::vector<uint32_t>{kFirst, 0, 0, 0});
  PreparedCase p;
  p.out = device.create_buffer("out", count * 4);
  p.recording = std::make_unique<Recording>(device, "scale");
  record_scale(*p.recording, "scale", op, state, upload_floats(device, "x", x), p.out, count, width);
  p.bytes = 8.0 * static_cast<double>(count);
  p.flops = 4.0 * static_cast<double>(count);
  if (use != CaseUse::kCheck) return p;
  for (size_t i = 0; i < count; ++i) {
    const double turns = std::floor((kFirst + static_cast<double>(i / width)) / op.length);
    const double grown = static_cast<double>(op.beta) * std::log1p(turns);
    p.expected.push_back(static_cast<double>(x[i]) * static_cast<double>(op.factor) * (1 + grown));
    // WGSL's log is off by 3 ulp, or by 2^-21 near one; two products, a sum, and the product with beta round.
    const double growth = 0x1p-21 * std::abs(static_cast<double>(op.beta)) + 4 * kUlp * std::abs(grown);
    p.bound.push_back(std::abs(static_cast<double>(x[i] * op.factor)) * growth + 2 * kUlp * std::abs(p.expected[i]));
  }
  return p;
}

struct GluTruth {
  double value, bound;
};

GluTruth glu_truth(const Glu& op, double gate, double up) {
  // WGSL's exp is off by 3 + 2|v| ulp, division by 2.5; the argument itself carries a few roundings, each worth |v| ulp
  // of the result.
  auto sigmoid_ulps = [](double v) { return 3 + 2 * std::abs(v) + 2.5 + 6 * std::abs(v) + 1; };
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  double value = 0, argument = 0;
  switch (op.activation) {
    case Activation::kGeluTanh:
      argument = 2 * std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
      value = 0.5 * gate * (1 + std::tanh(argument / 2)) * up;
      if (argument < -4) value = gate * sigmoid(argument) * up;  // the same, where 1 + tanh cancels
      break;
    case Activation::kSilu:
      argument = gate;
      value = gate * sigmoid(argument) * up;
      break;
    case Activation::kSigmoid:
      argument = gate;
      value = sigmoid(argument) * up;
      break;
    case Activation::kClampedSwiglu: {
      const double limit = static_cast<double>(op.limit);
      const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
      argument = static_cast<double>(op.alpha) * g;
      value = g * sigmoid(argument) * (u + 1);
      break;
    }
  }
  // sigmoid(-80) is 2e-35, where the kernel cuts; products below 1e-37 may be flushed to zero.
  const double floor = 2e-35 * (std::abs(gate) + 1) * (std::abs(up) + 1) + 1e-37;
  return {value, (sigmoid_ulps(std::min(std::abs(argument), 80.0)) + 3) * kUlp * std::abs(value) + floor};
}

PreparedCase prepare_glu(Device& device, CaseUse use, const Glu& op, size_t count) {
  CaseRandom random(count + 17);
  std::vector<float> gate = random.floats(count, -12, 12), up = random.floats(count, -9, 9);
  for (size_t i = 0; i + 1 < count; i += 97) {  // far out, where tanh and exp saturate
    gate[i] = static_cast<float>(random.uniform(-15000, 15000));
    gate[i + 1] = static_cast<float>(random.uniform(-0.01, 0.01));
  }
  std::vector<float> both;
  for (size_t i = 0; i < count; ++i) {
    both.push_back(gate[i]);
    both.push_back(up[i]);
  }
  PreparedCase p;
  p.out = device.create_buffer("out", count * 4);
  p.recording = std::make_unique<Recording>(device, "glu");
  const Buffer first = upload_floats(device, "gate", op.interleaved ? both : gate);
  const Buffer second = op.interleaved ? Buffer() : upload_floats(device, "up", up);
  record_glu(*p.recording, "glu", op, first, second, p.out, count);
  p.bytes = 12.0 * static_cast<double>(count);
  p.flops = 10.0 * static_cast<double>(count);
  if (use == CaseUse::kCheck) {
    for (size_t i = 0; i < count; ++i) {
      const GluTruth truth = glu_truth(op, static_cast<double>(gate[i]), static_cast<double>(up[i]));
      p.expected.push_back(truth.value);
      p.bound.push_back(truth.bound);
    }
  }
  return p;
}

}  // namespace

void append_elementwise_cases(std::vector<KernelCase>& cases) {
  for (size_t count : {1, 5, 1023, 1024, 1025, 4 * 1152}) {
    cases.push_back({"add", fmt::format("{}", count), false,
                     [=](Device& device, CaseUse use) { return prepare_add(device, use, count, 1); }});
    cases.push_back({"add", fmt::format("{} times 0.22", count), false,
                     [=](Device& device, CaseUse use) { return prepare_add(device, use, count, 0.22f); }});
  }
  cases.push_back({"add", "512x1152", true,
                   [](Device& device, CaseUse use) { return prepare_add(device, use, size_t{512} * 1152, 1); }});
  for (size_t count : {4, 4100}) {
    cases.push_back({"copy", fmt::format("{}", count * 4), false,
                     [=](Device& device, CaseUse use) { return prepare_copy(device, use, count); }});
  }
  for (size_t count : {1, 1025, 5000}) {
    for (const float cap : {30.f, 50.f}) {
      cases.push_back({"softcap", fmt::format("{} at {}", count, cap), false,
                       [=](Device& device, CaseUse use) { return prepare_softcap(device, use, count, cap); }});
    }
  }
  for (const uint32_t width : {1u, 96u, 1025u}) {
    for (const Scale op : {Scale{0.1f}, Scale{1, 0.1f, 16}, Scale{2, -0.5f, 7}}) {
      cases.push_back({"scale", fmt::format("{} times {} by {} in {}", width, op.factor, op.beta, op.length), false,
                       [=](Device& device, CaseUse use) { return prepare_scale(device, use, op, 9, width); }});
    }
  }
  const std::pair<const char*, Glu> ops[] = {
      {"gelu_tanh", {Activation::kGeluTanh, false, 0, 0}},
      {"silu", {Activation::kSilu, false, 0, 0}},
      {"clamped_swiglu", {Activation::kClampedSwiglu, false, 7, 1.702f}},
      {"clamped_swiglu interleaved", {Activation::kClampedSwiglu, true, 7, 1.702f}},
      {"silu interleaved", {Activation::kSilu, true, 0, 0}},
      {"sigmoid", {Activation::kSigmoid, false, 0, 0}},
  };
  for (const auto& [name, op] : ops) {
    for (size_t count : {1, 1023, 6912, 5000}) {
      cases.push_back({"glu", fmt::format("{} {}", name, count), false,
                       [op = op, count](Device& device, CaseUse use) { return prepare_glu(device, use, op, count); }});
    }
  }
  cases.push_back({"glu", "gelu_tanh 512x6912", true, [](Device& device, CaseUse use) {
                     return prepare_glu(device, use, {Activation::kGeluTanh, false, 0, 0}, size_t{512} * 6912);
                   }});
}

}  // namespace doppler::gpu
