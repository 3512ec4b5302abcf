#include "convert/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "convert/synth_blocks.h"
#include "import/tensor_map.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSynthWeights = 8 << 20;
constexpr float kNormDeviation = 0.05f, kBiasDeviation = 0.02f;

struct Task {
  RdrrTensorEntry entry;
  QuantClass quant;
};

Task task_for(const WeightUse& use, const Family& family, const ModelConfig& config, const Recipe& recipe) {
  const TensorRule rule = rule_for(family, use.slot, layouts_of(family).front());
  const DType dtype =
      !rule.blocks.empty() ? DType::kMXFP4 : dtype_for(recipe, rule.quant, layer_of(use.slot), config.layer_count());
  return {{rule.stored, use.slot, dtype, use.shape, rule.role, {}, 0}, rule.quant};
}

// Vectors: norms around what multiplies by one, biases small.
std::vector<float> make_vector(const Task& task, const ModelConfig& config, uint64_t key) {
  std::vector<float> values(task.entry.weights());
  const bool norm = task.entry.role == "norm";
  synth_floats(key, norm ? 1 - config.norm_offset : 0, norm ? kNormDeviation : kBiasDeviation, values.data(),
               values.size());
  return values;
}

}  // namespace

SizedModel sized_model(const Preset& preset, const Recipe& recipe) {
  SizedModel model{config_from_hf(*preset.family, *preset.config, preset.name), {}};
  for (const WeightUse& use : weights_of(build_plan(model.config))) {
    const RdrrTensorEntry entry = task_for(use, *preset.family, model.config, recipe).entry;
    model.weights.add(entry.slot, {.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .bytes = {}});
  }
  return model;
}

ArtefactReport synth(const Preset& preset, const fs::path& given_target, const SynthOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const fs::path target = final_name(given_target);
  check_destination(target, options.replace);
  ModelConfig config = config_from_hf(*preset.family, *preset.config, preset.name);
  config.id = options.id.empty() ? target.filename().string() : options.id;
  check(config, preset.name);

  std::vector<Task> tasks;
  uint64_t all = 0, bytes = 0, done = 0;
  for (const WeightUse& use : weights_of(build_plan(config))) {
    tasks.push_back(task_for(use, *preset.family, config, options.recipe));
    const RdrrTensorEntry& entry = tasks.back().entry;
    const auto cols = static_cast<size_t>(entry.shape.back());
    all += entry.weights();
    bytes += entry.weights() / cols * row_bytes(entry.dtype, cols) + kRdrrAlignment;
  }
  check_room(target, bytes);

  ArtefactReport report;
  RdrrWriter writer(target, options.shard_size);
  ThreadPool pool(options.threads);
  std::vector<std::byte> buffer;
  for (const Task& task : tasks) {
    const RdrrTensorEntry& entry = task.entry;
    const uint64_t key = stream_key(options.seed, entry.slot.data(), entry.slot.size());
    const int64_t cols = entry.shape.back(), rows = static_cast<int64_t>(entry.weights()) / cols;
    const size_t stride = row_bytes(entry.dtype, static_cast<size_t>(cols));
    ClassReport& line = report.of(task.quant, entry.dtype);
    writer.begin(entry);
    const bool matrix = entry.role == "matmul" || entry.role == "embedding" || entry.role == "lm_head" ||
                        entry.role == "expert" || (entry.role == "router" && entry.shape.size() > 1);
    if (!matrix) {
      writer.write(std::as_bytes(std::span<const float>(make_vector(task, config, key))));
      done += entry.weights();
    }
    const auto deviation = static_cast<float>(1 / std::sqrt(static_cast<double>(cols)));
    const int64_t piece = std::clamp<int64_t>(kSynthWeights / cols, 1, rows);
    for (int64_t first = 0; matrix && first < rows; first += piece) {
      const int64_t count = std::min(piece, rows - first);
      buffer.resize(static_cast<size_t>(count) * stride);
      pool.run([&](int index, int threads) {
        const Range range = split_range(count, index, threads);
        for (long r = range.begin; r < range.end; ++r) {
          synth_row(entry.dtype, key, static_cast<uint64_t>(first + r), deviation,
                    buffer.data() + static_cast<size_t>(r) * stride, static_cast<size_t>(cols));
        }
      });
      writer.write(buffer);
      done += static_cast<uint64_t>(count * cols);
      if (options.progress) options.progress(done, all);
      if (options.cancelled && options.cancelled()) {
        fail({.code = ErrorCode::kFile,
              .what = "the synthesis was interrupted; nothing is left of it",
              .where = target.string()});
      }
    }
    writer.end();
    ++line.tensors;
    line.weights += entry.weights();
    line.bytes += static_cast<uint64_t>(rows) * stride;
  }
  Json manifest = make_manifest(config, *preset.family, options.recipe, preset.name, writer.tensors());
  manifest["metadata"]["synthetic"] = true;
  manifest["metadata"]["seed"] = options.seed;
  manifest["metadata"]["note"] =
      "random weights of sane scale, for measuring; there is no tokenizer and no sense in the text";
  manifest["tokenizer"] = nullptr;
  report.weights = all;
  report.bytes = writer.written();
  report.shards = static_cast<int>((report.bytes + options.shard_size - 1) / options.shard_size);
  report.notes.push_back("the weights are random and there is no tokenizer: run takes token ids only (--prompt-ids)");
  writer.commit(std::move(manifest), options.replace);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace doppler
