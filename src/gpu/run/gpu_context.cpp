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

bool is_mapped(const Step& step) {
  const auto* embed = std::get_if<Embed>(&step.op);
  return embed && embed->mapped;
}

bool is_matrix(const Step& step, size_t weight) {
  return weight == 0 && !is_mapped(step) &&
         (std::holds_alternative<MatMul>(step.op) || std::holds_alternative<Embed>(step.op) ||
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
    if (is_mapped(step)) continue;
    if (std::holds_alternative<Scale>(step.op)) {
      factors_[step.name] = factor_of(step, weights);
      continue;
    }
    if (const auto* norm = std::get_if<Norm>(&step.op); norm && step.weights.empty()) {
      Buffer& ones = ones_[norm->group];
      if (!ones) ones = upload(device, "ones", std::vector<float>(static_cast<size_t>(norm->group), 1.0f));
    }
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
    if (!op || op->shared) continue;
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

const Buffer& GpuWeights::norm_weight(const Step& step) const {
  return step.weights.empty() ? ones_.at(std::get<Norm>(step.op).group) : vector(step.weights[0].slot);
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
                       const CacheSize& size, bool experts_later, const Adapters* adapters)
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
    const int head_dim = config.head_dim_of_rope(static_cast<int>(&rope - config.ropes.data()));
    if (rotary_dims(rope, head_dim) % 4) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the WebGPU backend does not turn so many dims of a head",
            .where = config.id,
            .expected = "a multiple of 4",
            .got = std::to_string(rotary_dims(rope, head_dim)),
            .todo = "Use --backend cpu"});
    }
    const std::vector<float> table = rope_tables(make_rope_table(rope, head_dim, context), context, head_dim / 2);
    ropes.push_back(device.create_buffer("rope", table.size() * sizeof(float)));
    write<float>(device, ropes.back(), table);
  }
  tokens = device.create_buffer("tokens", static_cast<uint64_t>(block) * sizeof(uint32_t));
  for (const Step& s : plan.steps) {
    if (!is_mapped(s)) continue;
    const uint64_t bytes = static_cast<uint64_t>(block) * static_cast<uint64_t>(width(s.output)) * sizeof(float);
    tables[s.output] = {weights_.at(s.weights[0].slot), std::get<Embed>(s.op).scale,
                        device.create_buffer(s.name + " rows", bytes)};
  }
  uint64_t rank = 0;
  for (const Step& s : plan.steps) {
    if (!std::holds_alternative<MatMul>(s.op)) continue;
    const std::string& slot = s.weights[0].slot;
    for (const auto& [adapter, pair] : pairs_of(adapters, slot)) {
      loras[slot].emplace(adapter, upload_lora(device, slot, *pair));
      rank = std::max(rank, static_cast<uint64_t>(pair->rank));
    }
  }
  if (rank > 0) lora_thin = device.create_buffer("thin products", static_cast<uint64_t>(block) * rank * sizeof(float));
}

void GpuContext::look_up(std::span<const int32_t> tokens_to_run) {
  std::vector<std::byte> scratch;
  for (auto& [value, table] : tables) {
    const auto cols = static_cast<size_t>(table.tensor.cols());
    std::vector<float> rows(tokens_to_run.size() * cols);
    for (size_t t = 0; t < tokens_to_run.size(); ++t) {
      float* row = rows.data() + t * cols;
      decode_row(table.tensor.dtype, table.tensor.rows_at(tokens_to_run[t], 1, scratch), row, cols);
      for (size_t i = 0; i < cols; ++i) row[i] *= table.scale;
    }
    write<float>(device, table.rows, rows);
  }
}

}  // namespace doppler::gpu
