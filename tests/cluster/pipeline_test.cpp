// A model in stages, on ranks that are threads: bit for bit what one executor gives.
#include "cluster/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "cpu/cpu_executor.h"
#include "cpu/isa.h"
#include "cpu/random_model.h"
#include "ref/ref_executor.h"
#include "support/crowd.h"

namespace doppler {
namespace {

using testing::Crowd;
using testing::RandomModel;

constexpr int kContext = 192;

// Messages between threads.
class Wires {
 public:
  explicit Wires(int ranks) : size(ranks) {}
  void send(int from, int to, Message message) {
    const std::lock_guard lock(mutex_);
    bytes[{from, to}] += message.size();
    ++messages[{from, to}];
    queues_[{from, to}].push_back(std::move(message));
    changed_.notify_all();
  }
  Message receive(int from, int to) {
    std::unique_lock lock(mutex_);
    std::deque<Message>& queue = queues_[{from, to}];
    changed_.wait(lock, [&] { return !queue.empty(); });
    Message message = std::move(queue.front());
    queue.pop_front();
    return message;
  }
  const int size;
  std::map<std::pair<int, int>, size_t> bytes, messages;  // looked at while nobody sends

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Message>> queues_;
};

class ThreadRank : public Transport {
 public:
  ThreadRank(Wires& wires, int rank) : wires_(wires), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return wires_.size; }
  void send(int to, Message message) override { wires_.send(rank_, to, std::move(message)); }
  Message receive(int from) override { return wires_.receive(from, rank_); }

 private:
  Wires& wires_;
  const int rank_;
};

using Make = std::function<std::unique_ptr<Executor>(const Plan&, const ExecutorOptions&)>;

int32_t likeliest_of(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The first rank is the test's own thread; one `make` for each rank, the last for those that have none.
class Ranks {
 public:
  Ranks(const RandomModel& model, int ranks, const std::vector<Make>& makes, ExecutorOptions options)
      : wires(ranks), first_(wires, 0) {
    options.threads = 1;
    const auto backend = [&](int rank) {
      StageBackend made;
      made.make = makes[std::min(static_cast<size_t>(rank), makes.size() - 1)];
      made.choose = likeliest_of;
      made.options = options;
      made.speed = 1;
      return made;
    };
    for (int rank = 1; rank < ranks; ++rank) {
      threads_.emplace_back([this, &model, rank, mine = backend(rank)] {
        ThreadRank transport(wires, rank);
        run_stages(transport, model.plan, model.weights, mine);
      });
    }
    executor = make_pipeline(first_, model.config, model.plan, model.weights, backend(0),
                             [this](const std::string& line) { about.push_back(line); });
  }
  ~Ranks() {
    executor.reset();
    end_stages(first_);
    for (std::thread& thread : threads_) thread.join();
  }

  Wires wires;
  std::vector<std::string> about;
  std::unique_ptr<Executor> executor;

 private:
  ThreadRank first_;
  std::vector<std::thread> threads_;
};

ModelConfig windows_config() {
  ModelConfig c = testing::odd_config();
  c.layers = {{7, 1}, {16, 1}, {40, 0}, {0, 1}};
  return c;
}

struct Model {
  const char* name;
  ModelConfig (*config)();
};
const Model kModels[] = {{"quirky", testing::quirky_config},
                         {"windows", windows_config},
                         {"experts", testing::expert_config},
                         {"sparse", testing::sparse_config},
                         {"conv", testing::conv_config},
                         {"delta", testing::delta_config},
                         {"delta_experts", testing::delta_expert_config}};

class PipelineTest : public ::testing::TestWithParam<Model> {};

TEST_P(PipelineTest, GivesTheBitsOfOneExecutor) {
  // The best kernels have other numbers for prompts than for single tokens (with K-quants), the portable ones have not.
  for (const auto& [type, kernels] :
       {std::pair(DType::kQ4_K, &cpu::choose_kernels()), std::pair(DType::kBF16, cpu::available_kernels().front())}) {
    const RandomModel m(GetParam().config(), type);
    const Make make = [&m, tuning = CpuTuning{.kernels = kernels}](const Plan& plan, const ExecutorOptions& options) {
      return make_cpu_executor(m.config, plan, weights_of(plan, m.weights), options, tuning);
    };
    const ExecutorOptions options{.context = kContext, .threads = 1, .block = 17, .cache_memory = 64 << 20};
    const auto whole = make(m.plan, options);
    const int parts = static_cast<int>(possible_cuts(m.plan).size()) + 1;
    for (const int ranks : {2, 4}) {
      if (ranks > parts) continue;
      SCOPED_TRACE(::testing::Message() << name_of(type) << " " << kernels->name << ", " << ranks << " ranks");
      Ranks pipeline(m, ranks, {make}, options);
      EXPECT_EQ(pipeline.executor->min_prefill_tokens(), whole->min_prefill_tokens());
      Crowd crowd(*pipeline.executor, 5, whole.get());
      crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, 6);
      crowd.run_all();
      if (HasFatalFailure()) return;
      EXPECT_GT(crowd.found, 0) << "prefixes are found again";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineTest, ::testing::ValuesIn(kModels),
                         [](const auto& model) { return std::string(model.param.name); });

// The reference's pages are a quarter of the CPU's.
TEST(Pipeline, RanksOfSeveralBackendsWorkTogether) {
  const RandomModel m(windows_config(), DType::kF32);
  const auto cpu = [&](const Plan& plan, const ExecutorOptions& options) {
    return make_cpu_executor(m.config, plan, weights_of(plan, m.weights), options);
  };
  const auto ref = [&](const Plan& plan, const ExecutorOptions& options) {
    return make_ref_executor(m.config, plan, weights_of(plan, m.weights), options);
  };
  const ExecutorOptions options{.context = kContext, .cache_memory = 64 << 20};
  for (const std::vector<Make>& makes : {std::vector<Make>{cpu, ref, cpu}, std::vector<Make>{ref, cpu}}) {
    Ranks pipeline(m, 3, makes, options);
    Crowd crowd(*pipeline.executor, 9);
    crowd.prepare([&](int count, uint64_t seed) { return m.tokens(count, seed); }, 8);
    crowd.run_all();
    if (HasFatalFailure()) return;
    EXPECT_GT(crowd.found, 0);
    const std::vector<int32_t> prompt = m.tokens(40);
    Context all(*pipeline.executor);
    const auto got = all.forward(prompt, Logits::kLast);
    const auto whole = make_ref_executor(m.config, m.plan, m.weights, options);
    Context alone(*whole);
    const auto expected = alone.forward(prompt, Logits::kLast);
    ASSERT_EQ(got.size(), expected.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += (got[i] - expected[i]) * (got[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    EXPECT_LT(std::sqrt(difference / size), 0.02) << "keys in 16 bits against keys in 32";
  }
}

TEST(Pipeline, ManyBatchesAreOnTheirWay) {
  const RandomModel m(windows_config(), DType::kQ4_K);
  const Make make = [&](const Plan& plan, const ExecutorOptions& options) {
    return make_cpu_executor(m.config, plan, weights_of(plan, m.weights), options);
  };
  const ExecutorOptions options{.context = kContext, .sequences = 6};
  const auto whole = make(m.plan, options);
  Ranks pipeline(m, 3, {make}, options);
  ASSERT_EQ(pipeline.executor->lanes(), 3);
  const std::vector<int32_t> prompt = m.tokens(30);
  const auto answers = [&](Executor& executor, size_t lanes) {
    std::vector<Sequence> sequences;
    std::vector<std::vector<int32_t>> texts(6);
    std::vector<int32_t> next;
    for (size_t i = 0; i < texts.size(); ++i) {
      sequences.push_back(executor.cache().start(i));
      next.push_back(prompt[i]);
    }
    const auto begin = [&](size_t lane) {
      std::vector<BatchItem> batch;
      for (size_t i = lane; i < texts.size(); i += lanes)
        batch.push_back({&sequences[i], std::span(&next[i], 1), Phase::kDecode,
                         executor.can_choose() ? Logits::kBest : Logits::kLast});
      executor.start(batch);
    };
    const auto end = [&](size_t lane) {
      const std::span<const float> logits = executor.finish();
      size_t row = 0;
      for (size_t i = lane; i < texts.size(); i += lanes, ++row) {
        const size_t vocab = static_cast<size_t>(m.config.vocab);
        next[i] = logits.empty() ? executor.best()[row] : likeliest_of(logits.subspan(row * vocab, vocab));
        texts[i].push_back(next[i]);
      }
    };
    for (size_t lane = 0; lane < lanes; ++lane) begin(lane);
    for (int step = 0; step < 20; ++step) {
      for (size_t lane = 0; lane < lanes; ++lane) {
        end(lane);
        begin(lane);
      }
    }
    for (size_t lane = 0; lane < lanes; ++lane) end(lane);
    return texts;
  };
  EXPECT_EQ(answers(*pipeline.executor, 3), answers(*whole, 1));
}

TEST(Pipeline, SendsWhatWasReckoned) {
  const RandomModel m(windows_config(), DType::kQ4_K);
  const Make make = [&](const Plan& plan, const ExecutorOptions& options) {
    return make_cpu_executor(m.config, plan, weights_of(plan, m.weights), options);
  };
  Ranks pipeline(m, 3, {make}, {.context = kContext});
  Executor& executor = *pipeline.executor;
  Context context(executor);
  context.forward(m.tokens(40), Logits::kNone);
  const auto sent = pipeline.wires.bytes;
  const std::vector<int32_t> token = m.tokens(1);
  context.forward(token, Logits::kLast);
  const KvCache::Place place = executor.cache().place_of(context.sequence());
  WireItem item{.tokens = 1};
  for (const auto& table : place.tables) item.table_entries += static_cast<int>(table.size());
  const size_t expected = wire_bytes(std::span(&item, 1), static_cast<int>(place.tables.size()), m.config.hidden);
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 2)})
    EXPECT_EQ(pipeline.wires.bytes.at({from, to}) - sent.at({from, to}), expected);
  const size_t logits = 4 + 8 + 4 + static_cast<size_t>(m.config.vocab) * 4;
  EXPECT_EQ(pipeline.wires.bytes.at({2, 0}) - sent.at({2, 0}), logits);
}

TEST(Pipeline, StepsCannotBeTapped) {
  const RandomModel m(windows_config(), DType::kQ4_K);
  const Make make = [&](const Plan& plan, const ExecutorOptions& options) {
    return make_cpu_executor(m.config, plan, weights_of(plan, m.weights), options);
  };
  Ranks pipeline(m, 2, {make}, {.context = kContext});
  EXPECT_FALSE(pipeline.executor->can_tap());
  EXPECT_THROW(pipeline.executor->set_tap([](const Step&, std::span<const float>, int, int) {}), Failure);
}

// --- stages

TEST(Stages, ASliceHasItsLayersAndOneInput) {
  const RandomModel m(windows_config(), DType::kF32);
  const Plan first = slice(m.plan, 0, 1), middle = slice(m.plan, 1, 3), last = slice(m.plan, 3, 4);
  EXPECT_EQ(first.input, -1);
  EXPECT_EQ(first.steps.front().name, "embed");
  EXPECT_EQ(first.steps.back().name, "layer0.out");
  EXPECT_EQ(middle.input, first.steps.back().output);
  EXPECT_EQ(middle.steps.front().layer, 1);
  EXPECT_EQ(middle.steps.back().name, "layer2.out");
  EXPECT_EQ(last.input, middle.steps.back().output);
  EXPECT_EQ(last.steps.back().name, "logits");
  EXPECT_EQ(first.steps.size() + middle.steps.size() + last.steps.size(), m.plan.steps.size());
  EXPECT_EQ(possible_cuts(m.plan), (std::vector<int>{1, 2, 3}));
}

TEST(Stages, NoCutWhereASecondValueOrACacheCrosses) {
  Plan plan = RandomModel(windows_config(), DType::kF32).plan;
  const Plan whole = plan;
  for (Step& step : plan.steps) {  // layer 3 reads the cache of layer 2
    if (step.name == "layer3.attention") std::get<Attention>(step.op).layer = 2;
  }
  EXPECT_EQ(possible_cuts(plan), (std::vector<int>{1, 2}));
  plan = whole;
  const int early = plan.find("layer0.attn_norm")->output;
  for (Step& step : plan.steps) {
    if (step.name == "layer2.gate_proj") step.inputs[0] = early;
  }
  EXPECT_EQ(possible_cuts(plan), (std::vector<int>{3}));
}

TEST(Stages, TheSlowestStageIsAsFastAsCanBe) {
  std::vector<LayerNeed> layers(8, {.cost = 10, .memory = 100});
  const std::vector<int> cuts{1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(divide(layers, cuts, {{}, {}}), (std::vector<int>{0, 4, 8}));
  EXPECT_EQ(divide(layers, cuts, {{.speed = 3}, {}}), (std::vector<int>{0, 6, 8}));
  EXPECT_EQ(divide(layers, cuts, {{.speed = 3, .memory = 350}, {}}), (std::vector<int>{0, 3, 8}));
  layers.back().cost = 40;  // the output matrix
  EXPECT_EQ(divide(layers, cuts, {{}, {}}), (std::vector<int>{0, 5, 8}));
  EXPECT_EQ(divide(layers, {4}, {{}, {}}), (std::vector<int>{0, 4, 8}));
  EXPECT_THROW(divide(layers, {4}, {{}, {}, {}}), Failure);
  EXPECT_THROW(divide(layers, cuts, {{.memory = 300}, {.memory = 400}}), Failure);
}

}  // namespace
}  // namespace doppler
