// The debugger finds each planted fault by the name of its step, on the CPU and through WebGPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "convert/convert.h"
#include "cpu/cpu_executor.h"
#include "debug/compare.h"
#include "debug/faults.h"
#include "engine/backend.h"
#include "gpu/run/gpu_executor.h"
#include "gpu/webgpu/device.h"
#include "support/reference.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

// Makes the position counter slip by running one token too many, unseen, before token `at`.
class Slipping : public Executor {
 public:
  Slipping(std::unique_ptr<Executor> inner, int at) : inner_(std::move(inner)), at_(at) {}
  std::string_view name() const override { return inner_->name(); }
  KvCache& cache() override { return inner_->cache(); }
  size_t context_bytes() const override { return inner_->context_bytes(); }
  void set_tap(Tap tap) override {
    tap_ = tap;
    inner_->set_tap(!tap ? Tap() : [this](const Step& step, std::span<const float> data, int tokens, int position) {
      if (!hidden_) tap_(step, data, tokens, position - slipped_);
    });
  }
  std::span<const float> run(std::span<const BatchItem> batch) override {
    const BatchItem& item = batch[0];
    const size_t at = static_cast<size_t>(at_);
    run_piece(item, item.tokens.first(at));
    hidden_ = true;
    run_piece(item, item.tokens.subspan(at, 1));
    hidden_ = false;
    slipped_ = 1;
    return run_piece(item, item.tokens.subspan(at));
  }

 private:
  std::span<const float> run_piece(const BatchItem& item, std::span<const int32_t> tokens) {
    const BatchItem piece{item.sequence, tokens, inner_->phase_of_prompt(tokens.size()), item.want};
    return inner_->run(std::span(&piece, 1));
  }

  std::unique_ptr<Executor> inner_;
  const int at_;
  Tap tap_;
  int slipped_ = 0;
  bool hidden_ = false;
};

// Goes on from token `at` with a table whose second page is the first.
class StaleTable : public Executor {
 public:
  StaleTable(std::unique_ptr<Executor> inner, int at) : inner_(std::move(inner)), at_(at) {}
  std::string_view name() const override { return inner_->name(); }
  KvCache& cache() override { return inner_->cache(); }
  size_t context_bytes() const override { return inner_->context_bytes(); }
  void set_tap(Tap tap) override { inner_->set_tap(std::move(tap)); }
  std::span<const float> run(std::span<const BatchItem> batch) override {
    const BatchItem& item = batch[0];
    const size_t at = static_cast<size_t>(at_);
    run_piece(item, item.tokens.first(at));
    show(*item.sequence, {});
    const std::span<const float> logits = run_piece(item, item.tokens.subspan(at));
    show(*item.sequence, taken_);
    return logits;
  }

 private:
  // Puts these blocks in the place of each group's second, or the first where none are given; keeps what was there.
  void show(Sequence& sequence, const std::vector<int32_t>& blocks) {
    KvCache::Place place = cache().place_of(sequence);
    taken_.clear();
    for (size_t g = 0; g < place.tables.size(); ++g) {
      taken_.push_back(std::exchange(place.tables[g][1], blocks.empty() ? place.tables[g][0] : blocks[g]));
    }
    cache().place(sequence, place);
  }
  std::span<const float> run_piece(const BatchItem& item, std::span<const int32_t> tokens) {
    const BatchItem piece{item.sequence, tokens, inner_->phase_of_prompt(tokens.size()), item.want};
    return inner_->run(std::span(&piece, 1));
  }

  std::unique_ptr<Executor> inner_;
  const int at_;
  std::vector<int32_t> taken_;
};

class PlantedFaults : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "webgpu") return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  LoadedModel load(const std::string& model, const testing::Scratch& scratch) {
    if (model == "tiny") return LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
    const size_t blank = model.find(' ');
    ConvertOptions options;
    options.recipe = recipe_named(model.substr(blank + 1, model.find(' ', blank + 1) - blank - 1));
    options.no_tokenizer = true;
    convert(DOPPLER_TEST_DATA "/models/" + model.substr(0, blank), scratch / "model", options);
    return LoadedModel::load(scratch / "model");
  }

  std::vector<int32_t> prompt(const std::string& model) {
    if (model == "tiny") return {2, 513, 665, 442, 365, 992, 418};
    std::vector<int32_t> ids =
        testing::Reference(DOPPLER_TEST_DATA "/models/" + model.substr(0, model.find(' '))).ids("prompt_ids");
    constexpr size_t kLong = 150;  // tokens
    while (model.ends_with(" long") && ids.size() < kLong) ids.push_back((5 * ids[ids.size() - 7] + 3) % 250);
    return ids;
  }

  std::unique_ptr<Executor> executor(const AlteredModel& f) {
    const ExecutorOptions options{.context = 256, .threads = 2, .checked = true};
    std::unique_ptr<Executor> made = GetParam() == "webgpu" ? make_gpu_executor(f.config, f.plan, f.weights, options)
                                                            : make_cpu_executor(f.config, f.plan, f.weights, options);
    if (f.stale_at >= 0) made = std::make_unique<StaleTable>(std::move(made), f.stale_at);
    if (f.slip_at >= 0) made = std::make_unique<Slipping>(std::move(made), f.slip_at);
    return made;
  }
};

// Made once for all faults of a model: what the truth computes, and what the healthy backend does.
struct Healthy {
  testing::Scratch scratch;
  std::unique_ptr<LoadedModel> model;
  Stages reference;
};

TEST_P(PlantedFaults, AreFoundByTheNameOfTheirStep) {
  std::map<std::string, Healthy> known;
  for (const Fault& fault : testing::planted_faults()) {
    SCOPED_TRACE(fault.name);
    Healthy& healthy = known[fault.model];
    const std::vector<int32_t> tokens = prompt(fault.model);
    const bool fresh = !healthy.model;
    if (fresh) {
      healthy.model = std::make_unique<LoadedModel>(load(fault.model, healthy.scratch));
      const auto truth = make_executor(*healthy.model, "ref", {.context = 256});
      healthy.reference = capture_run(*truth, healthy.model->plan, tokens, {});
    }
    const LoadedModel& model = *healthy.model;
    const Bounds bounds = bounds_for(model.weights, true);
    AlteredModel faulty{model.config, model.plan, model.weights, {}};
    if (fresh) {
      const Stages run = capture_run(*executor(faulty), faulty.plan, tokens, {});
      const Comparison well =
          compare_stages(run, healthy.reference, {faulty.config, faulty.plan, faulty.weights, 256}, bounds);
      ASSERT_EQ(well.first_bad, "") << well.cause << " error " << well.stages.back().rel_error << " element "
                                    << well.stages.back().element_error;
    }
    fault.plant(faulty);
    const Stages run = capture_run(*executor(faulty), faulty.plan, tokens, {});
    const Comparison ill =
        compare_stages(run, healthy.reference, {faulty.config, faulty.plan, faulty.weights, 256}, bounds);
    EXPECT_EQ(ill.first_bad, fault.step) << ill.cause;
    EXPECT_NE(ill.cause.find(fault.cause), std::string::npos) << ill.cause;
    ASSERT_FALSE(ill.stages.empty());
    EXPECT_FALSE(ill.stages.back().ok);
  }
}

INSTANTIATE_TEST_SUITE_P(Backend, PlantedFaults, ::testing::Values("cpu", "webgpu"),
                         [](const auto& each) { return each.param; });

// No false alarm: what rounding and quantisation do to a healthy model stays within the bounds.
class HealthyModels : public ::testing::TestWithParam<std::string> {};

TEST_P(HealthyModels, HaveNoFault) {
  const std::filesystem::path source = DOPPLER_TEST_DATA "/models/" + GetParam();
  for (const char* quant : {"f32", "q4_k_m"}) {
    testing::Scratch scratch;
    ConvertOptions options;
    options.recipe = recipe_named(quant);
    options.no_tokenizer = true;
    convert(source, scratch / "model", options);
    const LoadedModel model = LoadedModel::load(scratch / "model");
    const Stages reference = read_stages(source / "reference.safetensors");
    ASSERT_FALSE(reference.prompt_ids.empty());
    const auto cpu = make_executor(model, "cpu", {.context = 128, .threads = 2});
    const Stages run = capture_run(*cpu, model.plan, reference.prompt_ids, {});
    const Comparison other = compare_stages(run, reference, {model.config, model.plan, model.weights, 128},
                                            bounds_for(model.weights, false));
    EXPECT_EQ(other.first_bad, "") << quant << ": " << other.cause << " " << other.stages.back().rel_error;
    EXPECT_EQ(other.stages.size(), reference.all.size());
    EXPECT_TRUE(other.not_compared.empty());
    const auto truth = make_executor(model, "ref", {.context = 128});
    const Stages exact = capture_run(*truth, model.plan, reference.prompt_ids, {});
    const Comparison same =
        compare_stages(run, exact, {model.config, model.plan, model.weights, 128}, bounds_for(model.weights, true));
    EXPECT_EQ(same.first_bad, "") << quant << ": " << same.cause << " " << same.stages.back().rel_error;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, HealthyModels,
                         ::testing::Values("gemma3-a", "gemma3-b", "gemma2-a", "llama-a", "qwen3-a", "gptoss-a"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace doppler
