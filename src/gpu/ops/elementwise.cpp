#include "gpu/ops/elementwise.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "gpu/wgsl/elementwise.h"
#include "gpu/wgsl/embed.h"
#include "gpu/wgsl/rope.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kEach = 4;  // elements of a thread, where a kernel takes several: as in ops/elementwise.wgsl
constexpr uint32_t kEmbedThreads = 64;

}  // namespace

Variant choose_add(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_add(Recording& recording, const std::string& step, const BoundBuffer& a, const BoundBuffer& b,
                const BoundBuffer& out, uint64_t count, float scale) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Add>(step, choose_add(capabilities), {.count = static_cast<uint32_t>(count), .scale = scale},
                                {.a = a, .b = b, .out = out},
                                linear_grid(div_up(count, kThreads * kEach), capabilities.limits));
}

Variant choose_copy(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_copy(Recording& recording, const std::string& step, const BoundBuffer& from, const BoundBuffer& to,
                 uint64_t bytes) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t words = bytes / 16;
  recording.dispatch<wgsl::Copy>(step, choose_copy(capabilities), {.count = static_cast<uint32_t>(words)},
                                 {.input = from, .out = to},
                                 linear_grid(div_up(words, kThreads * kEach), capabilities.limits));
}

double measure_copy_bandwidth(int adapter) {
  using Clock = std::chrono::steady_clock;
  Device device({.adapter = adapter});
  // Far more than any cache holds; a software adapter gets less, it would take seconds.
  const uint64_t wanted = device.capabilities().software ? 16ull << 20 : 1ull << 30;
  const Limits& limits = device.capabilities().limits;
  const uint64_t bytes = std::min({wanted, limits.max_buffer_bytes, limits.max_binding_bytes}) / 16 * 16;
  const Buffer from = device.create_buffer("copy from", bytes), to = device.create_buffer("copy to", bytes);
  Recording recording(device, "bandwidth");
  record_copy(recording, "copy", from, to, bytes);
  double best = 0;
  for (int run = 0; run < 6; ++run) {  // the first warms up, yet cannot be the best
    const auto start = Clock::now();
    double seconds = 0;
    if (device.capabilities().timestamps) {
      seconds = device.time_ns(recording) * 1e-9;
    } else {
      device.submit(recording);
      device.wait();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    if (seconds > 0) best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  return best;
}

Variant choose_softcap(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_softcap(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& out,
                    uint64_t count, float cap) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Softcap>(step, choose_softcap(capabilities),
                                    {.count = static_cast<uint32_t>(count), .cap = cap}, {.x = x, .out = out},
                                    linear_grid(div_up(count, kThreads), capabilities.limits));
}

uint32_t activation_number(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh: return 0;
    case Activation::kSilu: return 1;
    case Activation::kClampedSwiglu: return 2;
    case Activation::kSigmoid: return 3;
  }
  fail({.code = ErrorCode::kInternal, .what = "an activation without a number"});
}

Variant choose_glu(const Capabilities&, const Glu& op) {
  return {{},
          {{"threads", kThreads},
           {"activation", static_cast<double>(activation_number(op.activation))},
           {"interleaved", op.interleaved ? 1 : 0},
           {"one_gate", op.one_gate ? 1 : 0}}};
}

void record_glu(Recording& recording, const std::string& step, const Glu& op, const BoundBuffer& gate,
                const BoundBuffer& up, const BoundBuffer& out, uint64_t count, uint32_t columns) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Glu>(
      step, choose_glu(capabilities, op),
      {.count = static_cast<uint32_t>(count), .limit = op.limit, .alpha = op.alpha, .columns = columns},
      {.gate = gate, .up = op.interleaved ? gate : up, .out = out},
      linear_grid(div_up(count, kThreads * kEach), capabilities.limits));
}

Variant choose_part(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_part(Recording& recording, const std::string& step, const Part& op, const BoundBuffer& x,
                 const BoundBuffer& out, uint64_t count) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Part>(step, choose_part(capabilities),
                                 {.count = static_cast<uint32_t>(count),
                                  .width = static_cast<uint32_t>(op.width),
                                  .parts = static_cast<uint32_t>(op.parts),
                                  .index = static_cast<uint32_t>(op.index)},
                                 {.x = x, .out = out}, linear_grid(div_up(count, kThreads), capabilities.limits));
}

Variant choose_norm(const Capabilities& capabilities, const NormShape& shape) {
  const uint32_t threads = shape.width <= 256 ? 64 : shape.width <= 1024 ? 128 : 256;
  return {{{"reduce", capabilities.subgroups ? "subgroup" : "plain"}}, {{"threads", threads}}};
}

void record_norm(Recording& recording, const std::string& step, const BoundBuffer& x, const BoundBuffer& weight,
                 const BoundBuffer& out, const NormShape& shape, float eps, float offset) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Norm>(
      step, choose_norm(capabilities, shape),
      {.groups = static_cast<uint32_t>(shape.groups), .width = shape.width, .eps = eps, .offset = offset},
      {.x = x, .weight = weight, .out = out}, linear_grid(shape.groups, capabilities.limits));
}

Variant choose_scale(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_scale(Recording& recording, const std::string& step, const Scale& op, const BoundBuffer& state,
                  const BoundBuffer& x, const BoundBuffer& out, uint64_t count, uint32_t width) {
  const Capabilities& capabilities = recording.device().capabilities();
  recording.dispatch<wgsl::Scale>(step, choose_scale(capabilities),
                                  {.count = static_cast<uint32_t>(count),
                                   .width = width,
                                   .factor = op.factor,
                                   .beta = op.beta,
                                   .length = static_cast<uint32_t>(op.length)},
                                  {.state = state, .x = x, .out = out},
                                  linear_grid(div_up(count, kThreads), capabilities.limits));
}

Variant choose_rope(const Capabilities&) { return {{}, {{"threads", kThreads}}}; }

void record_rope(Recording& recording, const std::string& step, const RopeShape& shape, const BoundBuffer& state,
                 const BoundBuffer& table, const BoundBuffer& x, const BoundBuffer& out) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint64_t pairs = uint64_t{shape.tokens} * shape.heads * shape.head_dim / 2;
  recording.dispatch<wgsl::Rope>(
      step, choose_rope(capabilities),
      {.tokens = shape.tokens, .heads = shape.heads, .head_dim = shape.head_dim, .dims = shape.dims},
      {.state = state, .rope = table, .x = x, .out = out}, linear_grid(div_up(pairs, kThreads), capabilities.limits));
}

Variant choose_embed(const Capabilities&, DType dtype) {
  return {{{"weights", std::string(kernel_name(dtype))}}, {{"threads", kEmbedThreads}}};
}

void record_embed(Recording& recording, const std::string& step, const Weight& matrix, const BoundBuffer& tokens,
                  const BoundBuffer& out, uint64_t count, float scale, uint32_t first_token) {
  const Capabilities& capabilities = recording.device().capabilities();
  const uint32_t pieces = div_up(static_cast<uint64_t>(matrix.cols), kPiece);
  for (const WeightPart& part : matrix.parts) {
    recording.dispatch<wgsl::Embed>(
        step, choose_embed(capabilities, matrix.dtype),
        {.tokens = static_cast<uint32_t>(count),
         .width = static_cast<uint32_t>(matrix.cols),
         .pieces = pieces,
         .stride = static_cast<uint32_t>(matrix.stride / 16),
         .first_row = static_cast<uint32_t>(part.first_row),
         .rows = static_cast<uint32_t>(part.rows),
         .scale = scale,
         .first_token = first_token},
        {.tokens = tokens, .w2 = part.bound(matrix.stride), .w4 = part.bound(matrix.stride), .out = out},
        linear_grid(div_up(count * pieces * 8, kEmbedThreads), capabilities.limits));
  }
}

}  // namespace doppler::gpu
