// Cases of what goes on from a state (short_conv, delta_net), of part, and of glu with one gate for a row.
#include "gpu/ops/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/cases/kernel_cases.h"
#include "gpu/ops/elementwise.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kCopies = 3, kFrom = 1, kTo = 2;  // of the states
constexpr uint32_t kFresh = 0xffffffff;

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

Buffer upload_places(Device& device, bool fresh) {
  const Buffer places = device.create_buffer("places", sizeof(StatePlaces));
  const StatePlaces value{fresh ? kFresh : kFrom, kTo};
  device.write(places, 0, std::as_bytes(std::span(&value, 1)));
  return places;
}

// What the kernel goes on from, and what lies in the copies that it must not read.
std::vector<float> copies_of(CaseRandom& random, size_t floats) { return random.floats(kCopies * floats, -1, 1); }

PreparedCase prepare_conv(Device& device, CaseUse use, const ShortConv& op, uint32_t tokens, bool fresh) {
  CaseRandom random(static_cast<uint64_t>(op.channels + op.kernel));
  const size_t channels = static_cast<size_t>(op.channels), kernel = static_cast<size_t>(op.kernel);
  const size_t width = op.gated ? 3 * channels : channels, before = (kernel - 1) * channels;
  const std::vector<float> x = random.floats(tokens * width, -2, 2), w = random.floats(channels * kernel, -1, 1);
  const std::vector<float> states = copies_of(random, before);
  PreparedCase p;
  p.out = device.create_buffer("out", tokens * channels * 4);
  p.recording = std::make_unique<Recording>(device, "short_conv");
  record_short_conv(*p.recording, "short_conv", op, upload_places(device, fresh), upload_floats(device, "x", x),
                    upload_floats(device, "w", w), upload_floats(device, "states", states), p.out, tokens);
  p.bytes = 4.0 * static_cast<double>(tokens * (width + channels));
  p.flops = 2.0 * static_cast<double>(tokens * channels * kernel);
  if (use != CaseUse::kCheck) return p;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t c = 0; c < channels; ++c) {
      double sum = 0, sizes = 0;
      for (size_t i = 0; i < kernel; ++i) {
        double value = 0;
        if (t + i + 1 >= kernel) {
          const float* row = x.data() + (t + i + 1 - kernel) * width;
          value = op.gated ? static_cast<double>(row[c]) * static_cast<double>(row[2 * channels + c])
                           : static_cast<double>(row[c]);
        } else if (!fresh) {
          value = static_cast<double>(states[kFrom * before + (t + i) * channels + c]);
        }
        sum += static_cast<double>(w[c * kernel + i]) * value;
        sizes += std::abs(static_cast<double>(w[c * kernel + i]) * value);
      }
      // Each product rounds, that of B and u too, and each addition of a sum no larger than all together.
      double bound = static_cast<double>(kernel + 2) * kUlp * sizes, out = sum;
      if (op.silu) {  // its slope is below 1.1; exp is off by 3 + 2|v| ulp, the division by 2.5
        out = sum * sigmoid(sum);
        bound = 1.1 * bound + (8 + 2 * std::abs(sum)) * kUlp * std::abs(out);
      }
      if (op.gated) {
        const auto gate = static_cast<double>(x[t * width + channels + c]);
        out *= gate;
        bound = bound * std::abs(gate) + kUlp * std::abs(out);
      }
      p.expected.push_back(out);
      p.bound.push_back(bound + 1e-37);
    }
  }
  return p;
}

struct DeltaInputs {
  std::vector<float> qkv, b, a, decay, dt, states;
};

// The rule in double. `bounds`: how far the outputs may be off. Errors are counted beside the values: e[i] is what S[i]
// may be off by.
void delta_truth(const DeltaNet& op, const DeltaInputs& in, uint32_t tokens, bool fresh, PreparedCase& p) {
  const size_t heads = static_cast<size_t>(op.value_heads), share = heads / static_cast<size_t>(op.key_heads);
  const size_t dk = static_cast<size_t>(op.key_dim), dv = static_cast<size_t>(op.value_dim);
  const size_t keys = dk * static_cast<size_t>(op.key_heads), width = 2 * keys + heads * dv;
  p.expected.assign(tokens * heads * dv, 0);
  p.bound.assign(tokens * heads * dv, 0);
  const double sum_ulps = static_cast<double>(dk) + 8;  // of a sum over the keys, and of the scale that multiplies it
  for (size_t h = 0; h < heads; ++h) {
    for (size_t j = 0; j < dv; ++j) {
      std::vector<double> s(dk), e(dk, 0.0), q(dk), k(dk);
      for (size_t i = 0; i < dk && !fresh; ++i)
        s[i] = static_cast<double>(in.states[((kFrom * heads + h) * dk + i) * dv + j]);
      for (size_t t = 0; t < tokens; ++t) {
        double qq = 0, kk = 0;
        for (size_t i = 0; i < dk; ++i) {
          q[i] = static_cast<double>(in.qkv[t * width + h / share * dk + i]);
          k[i] = static_cast<double>(in.qkv[t * width + keys + h / share * dk + i]);
          qq += q[i] * q[i];
          kk += k[i] * k[i];
        }
        const double eps = static_cast<double>(op.eps);
        const double q_scale = 1 / std::sqrt((qq + eps) * static_cast<double>(dk)), k_scale = 1 / std::sqrt(kk + eps);
        const double step = static_cast<double>(in.a[t * heads + h]) + static_cast<double>(in.dt[h]);
        const double softplus = std::max(step, 0.0) + std::log1p(std::exp(-std::abs(step)));
        const double rate = std::exp(static_cast<double>(in.decay[h])) * softplus, kept = std::exp(-rate);
        // The logarithm of about one is off by 2^-21, the other parts of the rate by a few ulp of it.
        const double kept_error =
            kept * (std::exp(static_cast<double>(in.decay[h])) * 0x1p-20 + (12 + 4 * rate) * kUlp);
        const double beta = sigmoid(static_cast<double>(in.b[t * heads + h]));
        const auto v = static_cast<double>(in.qkv[t * width + 2 * keys + h * dv + j]);
        double known = 0, known_size = 0, known_error = 0;
        for (size_t i = 0; i < dk; ++i) {
          known += k[i] * k_scale * s[i];
          known_size += std::abs(k[i] * k_scale * s[i]);
          known_error += std::abs(k[i] * k_scale) * e[i];
        }
        const double change = beta * (v - kept * known);
        const double change_error =
            beta * (kept * (known_error + sum_ulps * kUlp * known_size) + kept_error * std::abs(known)) +
            16 * kUlp * beta * (std::abs(v) + std::abs(kept * known));
        double found = 0, found_size = 0, found_error = 0;
        for (size_t i = 0; i < dk; ++i) {
          e[i] = kept * e[i] + kept_error * std::abs(s[i]) + std::abs(k[i] * k_scale) * change_error;
          s[i] = kept * s[i] + k[i] * k_scale * change;
          e[i] += sum_ulps * kUlp * std::abs(k[i] * k_scale * change) + 2 * kUlp * std::abs(s[i]);
          found += q[i] * q_scale * s[i];
          found_size += std::abs(q[i] * q_scale * s[i]);
          found_error += std::abs(q[i] * q_scale) * e[i];
        }
        p.expected[(t * heads + h) * dv + j] = found;
        p.bound[(t * heads + h) * dv + j] = found_error + sum_ulps * kUlp * found_size + 1e-37;
      }
    }
  }
}

PreparedCase prepare_delta(Device& device, CaseUse use, const DeltaNet& op, uint32_t tokens, bool fresh) {
  CaseRandom random(static_cast<uint64_t>(op.value_dim * 7 + op.key_dim));
  const size_t heads = static_cast<size_t>(op.value_heads), dk = static_cast<size_t>(op.key_dim);
  const size_t dv = static_cast<size_t>(op.value_dim), state = heads * dk * dv;
  const size_t width = 2 * dk * static_cast<size_t>(op.key_heads) + heads * dv;
  const DeltaInputs in{.qkv = random.floats(tokens * width, -2, 2),
                       .b = random.floats(tokens * heads, -3, 3),
                       .a = random.floats(tokens * heads, -4, 4),
                       .decay = random.floats(heads, -3, 1),
                       .dt = random.floats(heads, -1, 1),
                       .states = copies_of(random, state)};
  PreparedCase p;
  p.out = device.create_buffer("out", tokens * heads * dv * 4);
  p.recording = std::make_unique<Recording>(device, "delta_net");
  record_delta_net(*p.recording, "delta_net", op,
                   {.places = upload_places(device, fresh),
                    .qkv = upload_floats(device, "qkv", in.qkv),
                    .b = upload_floats(device, "b", in.b),
                    .a = upload_floats(device, "a", in.a),
                    .decay = upload_floats(device, "decay", in.decay),
                    .dt = upload_floats(device, "dt", in.dt),
                    .states = upload_floats(device, "states", in.states),
                    .out = p.out},
                   tokens);
  p.bytes = 4.0 * static_cast<double>(tokens * (width + heads * dv) + 2 * state);
  p.flops = 7.0 * static_cast<double>(tokens * state);
  if (use == CaseUse::kCheck) delta_truth(op, in, tokens, fresh, p);
  return p;
}

PreparedCase prepare_part(Device& device, CaseUse use, const Part& op, size_t groups) {
  CaseRandom random(groups);
  const size_t width = static_cast<size_t>(op.width), parts = static_cast<size_t>(op.parts), count = groups * width;
  const std::vector<float> x = random.floats(count * parts, -1, 1);
  PreparedCase p;
  p.out = device.create_buffer("out", count * 4);
  p.recording = std::make_unique<Recording>(device, "part");
  record_part(*p.recording, "part", op, upload_floats(device, "x", x), p.out, count);
  p.bytes = 8.0 * static_cast<double>(count);
  if (use != CaseUse::kCheck) return p;
  for (size_t i = 0; i < count; ++i)
    p.expected.push_back(
        static_cast<double>(x[(i / width * parts + static_cast<size_t>(op.index)) * width + i % width]));
  p.bound.assign(count, 0);
  return p;
}

PreparedCase prepare_one_gate(Device& device, CaseUse use, uint32_t rows, uint32_t columns) {
  CaseRandom random(rows + columns);
  const std::vector<float> gate = random.floats(rows, -8, 8), x = random.floats(size_t{rows} * columns, -5, 5);
  const Glu op{.activation = Activation::kSigmoid, .one_gate = true};
  PreparedCase p;
  p.out = device.create_buffer("out", x.size() * 4);
  p.recording = std::make_unique<Recording>(device, "glu");
  record_glu(*p.recording, "glu", op, upload_floats(device, "gate", gate), upload_floats(device, "x", x), p.out,
             x.size(), columns);
  p.bytes = 8.0 * static_cast<double>(x.size());
  if (use != CaseUse::kCheck) return p;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto g = static_cast<double>(gate[i / columns]);
    p.expected.push_back(sigmoid(g) * static_cast<double>(x[i]));
    p.bound.push_back((8 + 2 * std::abs(g)) * kUlp * std::abs(p.expected[i]) + 1e-37);
  }
  return p;
}

}  // namespace

void append_state_cases(std::vector<KernelCase>& cases) {
  for (const bool fresh : {true, false}) {
    const char* from = fresh ? "from nothing" : "from a state";
    for (const uint32_t tokens : {1u, 2u, 9u}) {
      for (const int channels : {1, 64, 200}) {
        for (const int kernel : {2, 3, 4, 16}) {
          const ShortConv op{.channels = channels, .kernel = kernel, .gated = kernel == 3, .silu = kernel == 4};
          cases.push_back({"short_conv", fmt::format("{}x{} by {} {}", tokens, channels, kernel, from), false,
                           [=](Device& device, CaseUse use) { return prepare_conv(device, use, op, tokens, fresh); }});
        }
      }
      for (const DeltaNet op : {DeltaNet{0, 0, 2, 4, 12, 20}, DeltaNet{0, 0, 1, 1, 32, 32},
                                DeltaNet{0, 0, 1, 3, 70, 33}, DeltaNet{0, 0, 1, 1, 256, 8}}) {
        const std::string name = fmt::format("{} tokens, {}/{} heads of {}x{} {}", tokens, op.value_heads, op.key_heads,
                                             op.key_dim, op.value_dim, from);
        cases.push_back({"delta_net", name, false,
                         [=](Device& device, CaseUse use) { return prepare_delta(device, use, op, tokens, fresh); }});
      }
    }
  }
  for (const size_t groups : {1, 5, 70}) {
    for (const Part op : {Part{8, 2, 0}, Part{8, 2, 1}, Part{33, 3, 1}}) {
      cases.push_back({"part", fmt::format("{} of {} x {}, {} groups", op.index, op.parts, op.width, groups), false,
                       [=](Device& device, CaseUse use) { return prepare_part(device, use, op, groups); }});
    }
  }
  for (const uint32_t columns : {1u, 96u, 1025u}) {
    cases.push_back({"glu", fmt::format("one gate for {}", columns), false,
                     [=](Device& device, CaseUse use) { return prepare_one_gate(device, use, 5, columns); }});
  }
  const DeltaNet large{0, 0, 16, 32, 128, 128};
  for (const uint32_t tokens : {1u, 512u}) {
    cases.push_back({"delta_net", fmt::format("{} tokens, 32/16 heads of 128x128", tokens), true,
                     [=](Device& device, CaseUse use) { return prepare_delta(device, use, large, tokens, false); }});
  }
}

}  // namespace doppler::gpu
