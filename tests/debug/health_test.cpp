// What no healthy model does is told by the step, without a reference, and nothing is said of a healthy one.
#include "debug/health.h"

#include <gtest/gtest.h>

#include "cpu/cpu_executor.h"
#include "debug/faults.h"
#include "engine/backend.h"

namespace doppler {
namespace {

using testing::AlteredModel;

const LoadedModel& tiny() {
  static const LoadedModel model = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  return model;
}

const std::vector<int32_t> kPrompt = {2, 513, 665, 442, 365, 992, 418};

// The anomalies of tiny with a fault, computed by the CPU.
std::vector<Anomaly> anomalies_with(const std::function<void(AlteredModel&)>& plant) {
  AlteredModel f{tiny().config, tiny().plan, tiny().weights, {}};
  plant(f);
  const auto executor = make_cpu_executor(f.config, f.plan, f.weights, {.context = 32, .threads = 1});
  return find_anomalies(capture_run(*executor, f.plan, kPrompt, {}), f.config, f.plan);
}

void scale_branch(AlteredModel& f, const std::string& step, float scale) {
  for (Step& s : f.plan.steps) {
    if (s.name == step) std::get<Add>(s.op).scale = scale;
  }
}

TEST(Health, NothingIsSaidOfAHealthyModel) {
  for (const Anomaly& anomaly : anomalies_with([](AlteredModel&) {})) ADD_FAILURE() << anomaly.text();
}

TEST(Health, ValuesThatExplodeOrCollapseAreToldWhereTheyBegin) {
  const auto up = anomalies_with([](AlteredModel& f) { scale_branch(f, "layer4.out", 1000); });
  ASSERT_FALSE(up.empty());
  EXPECT_EQ(up[0].step, "layer4.out");
  EXPECT_EQ(up[0].position, 6);
  EXPECT_EQ(up[0].what, "the values explode");
  const auto down = anomalies_with([](AlteredModel& f) {
    f.config.embed_scale = 1e-3f;
    testing::rebuild(f);
    for (Step& s : f.plan.steps) {
      if (auto* add = std::get_if<Add>(&s.op)) add->scale = 1e-3f;
    }
  });
  ASSERT_FALSE(down.empty());
  EXPECT_EQ(down[0].step, "layer0.out");
  EXPECT_EQ(down[0].what, "the values collapse");
}

// Of a model that nobody recorded, but for others that are built alike, the growth is known.
TEST(Health, AnotherModelOfTheFamilyIsJudgedByItsGrowth) {
  const auto with_more_heads = [](float scale) {
    return anomalies_with([scale](AlteredModel& f) {
      scale_branch(f, "layer4.out", scale);
      f.config.vocab += 1;  // another shape, so that no record is its own; nothing reads it
    });
  };
  EXPECT_TRUE(with_more_heads(1).empty());
  const auto found = with_more_heads(1e5f);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].step, "layer4.out");
  EXPECT_NE(found[0].expected.find("times the layer before"), std::string::npos) << found[0].expected;
}

TEST(Health, ADeadHeadIsToldByItsNumber) {
  const auto found = anomalies_with([](AlteredModel& f) {
    Tensor tensor = f.weights.at("layer2.v_proj");
    tensor.bytes = f.bytes.emplace_back(tensor.bytes.size());  // zeros, for every type
    f.weights.add("layer2.v_proj", tensor);
  });
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].step, "layer2.attention");
  EXPECT_EQ(found[0].what, "head 0 is dead");
}

struct Seen {
  HealthWatch watch{tiny().config, tiny().plan, {}};

  std::vector<Anomaly> logits(const std::vector<float>& row, int tokens) {
    const Step& step = *tiny().plan.find("logits");
    for (int t = 0; t < tokens; ++t) watch.see(step, row, 1, t);
    return watch.take();
  }
};

TEST(Health, LogitsThatSayNothingOrLeaveNoDoubt) {
  const std::vector<float> equal(100, 3.5f);
  std::vector<float> certain(100, 0.f), usual(100, 0.f);
  certain[7] = 60;  // e^-60 · 99 is far below 1e-6
  usual[7] = 10;    // e^-10 · 99 · 10 is 0.04 nats
  const auto nothing = Seen().logits(equal, 1);
  ASSERT_EQ(nothing.size(), 1u);
  EXPECT_EQ(nothing[0].what, "every token is as likely");
  EXPECT_TRUE(Seen().logits(certain, 7).empty()) << "a model may be certain of a few tokens";
  const auto no_doubt = Seen().logits(certain, 40);
  ASSERT_EQ(no_doubt.size(), 1u) << "told once";
  EXPECT_EQ(no_doubt[0].what, "the entropy is 0");
  EXPECT_EQ(no_doubt[0].position, 7);
  EXPECT_TRUE(Seen().logits(usual, 100).empty());
}

TEST(Health, AnExpertThatTakesEveryToken) {
  Plan plan;
  Step step;
  step.name = "layer1.route";
  step.op = Route{.k = 2};
  plan.steps.push_back(step);
  const auto told = [&](float weight, bool others) {
    HealthWatch watch(tiny().config, plan, {});
    std::vector<float> rows;
    for (int t = 0; t < 40; ++t) {
      const float first = others && t == 20 ? 1.f : 3.f;
      rows.insert(rows.end(), {first, 0.f, weight, 1 - weight});
    }
    watch.see(step, rows, 40, 5);
    return watch.take();
  };
  const auto found = told(1, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].step, "layer1.route");
  EXPECT_EQ(found[0].position, 5 + 31);
  EXPECT_NE(found[0].got.find("expert 3"), std::string::npos) << found[0].got;
  EXPECT_TRUE(told(0.6f, false).empty()) << "the second expert has a part";
  EXPECT_TRUE(told(1, true).empty()) << "another expert had a token";
}

TEST(Health, AnAnswerThatRepeatsItself) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 200; ++i) tokens.push_back(i);
  EXPECT_FALSE(HealthWatch::repeated(tokens));
  for (int i = 0; i < 63; ++i) tokens.push_back(7);
  EXPECT_FALSE(HealthWatch::repeated(tokens));
  tokens.push_back(7);
  EXPECT_TRUE(HealthWatch::repeated(tokens));
  std::vector<int32_t> cycle;
  for (int32_t i = 0; i < 64; ++i) cycle.push_back(i % 8);
  EXPECT_TRUE(HealthWatch::repeated(cycle));
  for (int32_t i = 0; i < 64; ++i) cycle[static_cast<size_t>(i)] = i % 9;
  EXPECT_FALSE(HealthWatch::repeated(cycle));
}

ModelConfig gemma_3_1b() {
  ModelConfig c = tiny().config;  // built alike
  c.layers.resize(26, c.layers[0]);
  c.hidden = 1152, c.ffn = 6912, c.heads = 4, c.kv_heads = 1, c.head_dim = 256, c.vocab = 262144;
  return c;
}

TEST(Health, Gemma31BIsKnownByItsShape) {
  const std::vector<HealthRecord> records = health_records(gemma_3_1b());
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records[0].model, "gemma-3-1b-it");
  EXPECT_TRUE(is_of(records[0], gemma_3_1b()));
  EXPECT_EQ(records[0].next, " blue");
  Stages run;
  const auto add = [&](const std::string& name, float largest) {
    run.all.push_back({name, 3, 0, {1.f, -2.f, 900.f, 0.f, -largest, 1.f}});
  };
  add("layer0.out", 230), add("layer16.out", 80000), add("layer25.out", 15100), add("final_norm", 61);
  const std::string table = health_table(run, gemma_3_1b(), " blue");
  for (const char* words : {"gemma-3-1b-it", "227", "8400", "15200", "60", "' blue'", "could not be run here"}) {
    EXPECT_NE(table.find(words), std::string::npos) << words << "\n" << table;
  }
  const size_t mark = table.find("✗");
  ASSERT_NE(mark, std::string::npos) << table;
  EXPECT_EQ(table.find("✗", mark + 1), std::string::npos) << table;
  EXPECT_NE(table.rfind("layer16.out", mark), std::string::npos);
  EXPECT_EQ(table.substr(table.rfind('\n', mark) + 1, 11), "layer16.out") << table;
  ModelConfig other = gemma_3_1b();
  other.hidden = 1024;
  EXPECT_EQ(health_table(run, other, ""), "");
}

TEST(Health, ARecordThatIsNoneIsRefused) {
  const char* good = R"({"model": "m", "about": "a", "shape": {}, "like": {}, "max_abs": {"layer0.out": [1, 2]}})";
  EXPECT_EQ(parse_health_record(good, "here").max_abs.at("layer0.out").most, 2);
  for (const char* bad : {R"({"model": "m", "about": "a", "shape": {}, "like": {}})",
                          R"({"model": "m", "about": "a", "shape": {}, "like": {}, "max_abs": {"layer0.out": 3}})"}) {
    EXPECT_THROW(parse_health_record(bad, "here"), Failure) << bad;
  }
}

}  // namespace
}  // namespace doppler
