#include "gpu/run/gpu_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "format/decode.h"

namespace doppler::gpu {
namespace {

std::vector<float> decoded(const Tensor& tensor) {
  const size_t rows = static_cast<size_t>(tensor.rows()), cols = static_cast<size_t>(tensor.cols());
  std::vector<float> values(rows * cols);
  std::vector<std::byte> scratch;
  const std::byte* stored = tensor.rows_at(0, tensor.rows(), scratch);
  for (size_t r = 0; r < rows; ++r) {
    decode_row(tensor.dtype, stored + r * tensor.stride(), values.data() + r * cols, cols);
  }
  return values;
}

// Empty where there is no such vector, or one of another size (a norm over all heads together).
std::vector<float> decoded_or_none(const Weights& weights, const std::string& slot, int size) {
  const Tensor* tensor = weights.find(slot);
  return tensor && tensor->cols() == size ? decoded(*tensor) : std::vector<float>();
}

Buffer upload(Device& device, const std::string& label, const std::vector<float>& values) {
  Buffer buffer = device.create_buffer(label, values.size() * sizeof(float));
  write<float>(device, buffer, values);
  return buffer;
}

bool is_matrix(const Step& step, size_t weight) {
  return weight == 0 && (std::holds_alternative<MatMul>(step.op) || std::holds_alternative<Embed>(step.op) ||
                         std::holds_alternative<ExpertMatMul>(step.op));
}

}  // namespace

GpuWeights::GpuWeights(Device& device, const ModelConfig& config, const Plan& plan,
                       const std::vector<FusedGroup>& groups, const Weights& weights, bool experts_later) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].fusion == Fusion::kProjectNorm) join(device, plan, groups[g], weights, groups_[g]);
  }
  for (const Step& step : plan.steps) {
    for (size_t w = 0; w < step.weights.size(); ++w) {
      const std::string& slot = step.weights[w].slot;
      if (is_matrix(step, w)) {
        uses_int8_ = uses_int8_ || takes_int8(weights.at(slot).dtype);
        if (matrices_.count(slot)) continue;
        const bool later = experts_later && std::holds_alternative<ExpertMatMul>(step.op);
        matrices_[slot] = later ? describe_weight(weights.at(slot)) : upload_weight(device, weights.at(slot));
      } else if (!vectors_.count(slot)) {
        vectors_[slot] = upload_vector(device, weights.at(slot));
      }
    }
  }
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op) continue;
    const std::string layer = "layer" + std::to_string(op->layer) + ".";
    heads_.resize(static_cast<size_t>(config.layer_count()));
    heads_[static_cast<size_t>(op->layer)] =
        upload(device, layer + "heads",
               gpu::head_weights(shape_of(*op), decoded_or_none(weights, layer + "q_norm", op->head_dim),
                                 decoded_or_none(weights, layer + "k_norm", op->head_dim),
                                 decoded_or_none(weights, layer + "sinks", op->heads)));
  }
  if (tracing(Trace::kLoader) && !device.measuring()) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    trace(Trace::kLoader, fmt::format("weights handed to the GPU: {:.0f} MiB in {:.0f} ms",
                                      static_cast<double>(device.allocated_bytes()) / (1 << 20), took.count()));
  }
}

void GpuWeights::join(Device& device, const Plan& plan, const FusedGroup& group, const Weights& weights,
                      GroupWeights& out) {
  const auto step = [&](int s) -> const Step& { return plan.steps[static_cast<size_t>(s)]; };
  std::vector<float> norms = decoded(weights.at(step(group.norm).weights[0].slot));
  if (group.branch_norm >= 0) {
    const std::vector<float> branch = decoded(weights.at(step(group.branch_norm).weights[0].slot));
    norms.insert(norms.end(), branch.begin(), branch.end());
  }
  out.norms = upload(device, step(group.norm).name, norms);

  std::vector<float> bias;
  std::vector<const Tensor*> run;
  std::vector<std::string> slots;
  const auto close_run = [&] {
    if (run.empty()) return;
    WeightRun joined{{}, out.rows};
    if (run.size() == 1) {
      // A lone matrix may be in use already: the output matrix is often the embedding.
      if (!matrices_.count(slots[0])) matrices_[slots[0]] = upload_weight(device, *run[0]);
      joined.weight = matrices_[slots[0]];
    } else {
      JoinedWeight both = upload_joined(device, run);
      for (size_t i = 0; i < slots.size(); ++i) matrices_[slots[i]] = both.each[i];
      joined.weight = std::move(both.all);
    }
    out.rows += static_cast<uint32_t>(joined.weight.rows);
    out.runs.push_back(std::move(joined));
    run.clear();
    slots.clear();
  };
  for (const int s : group.matmuls) {
    const Step& matmul = step(s);
    const Tensor& tensor = weights.at(matmul.weights[0].slot);
    run.push_back(&tensor);
    if (!can_join(device.capabilities(), run)) {
      run.pop_back();
      close_run();
      run.push_back(&tensor);
    }
    slots.push_back(matmul.weights[0].slot);
    if (matmul.weights.size() > 1) {
      const std::vector<float> more = decoded(weights.at(matmul.weights[1].slot));
      bias.insert(bias.end(), more.begin(), more.end());
    }
  }
  close_run();
  if (!bias.empty()) out.bias = upload(device, step(group.norm).name + " bias", bias);
}

GpuContext::GpuContext(Device& device_, const ModelConfig& config_, const Plan& plan_, const Weights& weights_,
                       const CacheSize& size, bool experts_later)
    : device(device_),
      config(config_),
      plan(plan_),
      context(size.context),
      block(size.block),
      groups(fuse_for_decode(plan)),
      weights(device, config, plan, groups, weights_, experts_later),
      kv(device, plan, size),
      state(kv.state()) {
  for (const RopeConfig& rope : config.ropes) {
    if (rotary_dims(rope, config.head_dim) % 4) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the WebGPU backend does not turn so many dims of a head",
            .where = config.id,
            .expected = "a multiple of 4",
            .got = std::to_string(rotary_dims(rope, config.head_dim)),
            .todo = "Use --backend cpu"});
    }
    const std::vector<float> table =
        rope_tables(make_rope_table(rope, config.head_dim, context), context, config.head_dim / 2);
    ropes.push_back(device.create_buffer("rope", table.size() * sizeof(float)));
    write<float>(device, ropes.back(), table);
  }
  tokens = device.create_buffer("tokens", static_cast<uint64_t>(block) * sizeof(uint32_t));
}

}  // namespace doppler::gpu
