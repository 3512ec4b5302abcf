// LoRA adapters beside the weights: against the reference, beside each other, and as files.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <list>

#include "engine/open_session.h"
#include "format/gguf_writer.h"
#include "format/safetensors.h"
#include "import/adapter.h"
#include "support/checkpoint.h"
#include "support/random_adapters.h"
#include "support/reference.h"
#include "support/runner.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string checkpoint, backend;
  double bound;  // relative error of any stage
};

class Adapted : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().backend != "webgpu") return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  std::filesystem::path source() const { return testing::model(GetParam().checkpoint); }

  // The checkpoint's own adapter, it times −0.75, and a random one.
  std::shared_ptr<const Adapters> three(AdapterUses standard) const {
    const std::vector<AdapterSpec> own = {{source() / "adapter"}};
    auto adapters = std::make_shared<Adapters>(*load_adapters(model_, own));
    adapters->all.push_back(adapters->all[0]);
    for (auto& [slot, pair] : adapters->all[1].pairs) pair.scale *= -0.75f;
    adapters->all.push_back(testing::random_adapter(model_.plan, 7, 3));
    adapters->standard = std::move(standard);
    return adapters;
  }
  std::unique_ptr<Executor> executor(AdapterUses standard) const {
    return make_executor(
        model_, GetParam().backend,
        {.context = 128, .threads = 2, .checked = true, .sequences = 5, .adapters = three(std::move(standard))});
  }

  const LoadedModel model_ = LoadedModel::load(source());
  const testing::Reference reference_{source()};
  const std::vector<int32_t> prompt_ = reference_.ids("prompt_ids");
};

TEST_P(Adapted, EveryStageAgreesWithTheReference) {
  const auto errors = testing::stage_errors(*executor({{0, 1}}), model_.plan, reference_);
  EXPECT_EQ(errors.size(), reference_.by_step.size()) << "a stage of the reference has no step of that name";
  for (const auto& [stage, error] : errors) EXPECT_LE(error, GetParam().bound) << stage;
}

TEST_P(Adapted, GreedyTokensAgreeWithAndWithoutIt) {
  for (const char* key : {"greedy_ids", "plain_greedy_ids"}) {
    const bool plain = key == std::string("plain_greedy_ids");
    const std::vector<int32_t> expected = reference_.ids(key);
    const std::vector<double> margins = reference_.margins();
    const auto runner = testing::one_sequence(executor(plain ? AdapterUses{} : AdapterUses{{0, 1}}));
    std::vector<int32_t> input = prompt_;
    for (size_t i = 0; i < expected.size(); ++i) {
      std::span<const float> logits = runner->forward(input, Logits::kLast);
      const int32_t token = argmax(logits);
      // The plain ids come without margins: ours are as good.
      std::vector<float> sorted(logits.begin(), logits.end());
      std::sort(sorted.rbegin(), sorted.rend());
      if ((plain ? sorted[0] - sorted[1] : margins[i]) > 0.01) {
        EXPECT_EQ(token, expected[i]) << key << " " << i;
      }
      input = {expected[i]};
    }
  }
}

// The second adapter is the first times −0.75.
TEST_P(Adapted, ScalesMultiplyAndSeveralAddUp) {
  const auto logits_with = [&](AdapterUses uses) {
    const auto runner = testing::one_sequence(executor(std::move(uses)));
    const std::span<const float> logits = runner->forward(prompt_, Logits::kLast);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const std::vector<float> plain = logits_with({}), one = logits_with({{0, 1}});
  EXPECT_GT(testing::relative_error(one, plain), 100 * GetParam().bound);
  EXPECT_LE(testing::relative_error(logits_with({{1, -4.f / 3}}), one), GetParam().bound);
  EXPECT_LE(testing::relative_error(logits_with({{0, 2}, {1, 4.f / 3}}), one), GetParam().bound);
  EXPECT_LE(testing::relative_error(logits_with({{0, 0.75f}, {1, 1}}), plain), GetParam().bound);
}

// Each gets the bits that it gets where the executor has nobody else, whatever runs beside it.
TEST_P(Adapted, ABatchOfThreeAdaptersIsEachAlone) {
  const std::vector<AdapterUses> uses = {{{0, 1}}, {}, {{1, 1}}, {{2, 1}}, {{0, 0.5f}, {2, 0.5f}}};
  const auto together = executor({});
  constexpr size_t kTokens = 6;
  std::vector<std::vector<float>> alone(uses.size());
  for (size_t s = 0; s < uses.size(); ++s) {
    const auto runner = testing::one_sequence(executor(uses[s]));
    std::span<const float> logits = runner->forward(prompt_, Logits::kLast);
    alone[s].assign(logits.begin(), logits.end());
    for (size_t t = 0; t < kTokens; ++t) {
      const BatchItem item{&runner->sequence(), std::span(prompt_).subspan(t, 1), Phase::kDecode, Logits::kLast};
      logits = static_cast<Executor&>(*runner).run(std::span(&item, 1));
      alone[s].insert(alone[s].end(), logits.begin(), logits.end());
    }
    EXPECT_TRUE(s == 0 || alone[s] != alone[0]);
  }
  std::vector<std::vector<float>> got(uses.size());
  std::vector<Sequence> sequences;
  for (const AdapterUses& use : uses) sequences.push_back(together->cache().start(0, use));
  for (size_t step = 0; step <= kTokens; ++step) {
    std::vector<BatchItem> batch;
    for (Sequence& sequence : sequences) {
      const std::span<const int32_t> all = prompt_;
      batch.push_back(step == 0 ? BatchItem{&sequence, all, together->phase_of_prompt(all.size()), Logits::kLast}
                                : BatchItem{&sequence, all.subspan(step - 1, 1), Phase::kDecode, Logits::kLast});
    }
    const std::span<const float> logits = together->run(batch);
    const size_t vocab = logits.size() / uses.size();
    for (size_t s = 0; s < uses.size(); ++s)
      got[s].insert(got[s].end(), logits.begin() + static_cast<long>(s * vocab),
                    logits.begin() + static_cast<long>((s + 1) * vocab));
  }
  for (size_t s = 0; s < uses.size(); ++s) EXPECT_EQ(got[s], alone[s]) << s;
}

TEST_P(Adapted, APrefixIsFoundByTheSameAdaptersAlone) {
  const auto runs = executor({});
  std::vector<int32_t> text;
  while (text.size() < 100) text.insert(text.end(), prompt_.begin(), prompt_.end());
  text.resize(100);
  {
    Sequence first = runs->cache().start(0, {{0, 1}});
    const BatchItem item{&first, text, Phase::kPrefill, Logits::kNone};
    runs->run(std::span(&item, 1));
  }
  const auto found = [&](AdapterUses uses) {
    Sequence sequence = runs->cache().start(0, std::move(uses));
    return runs->cache().take_prefix(sequence, text, Phase::kPrefill);
  };
  EXPECT_GT(found({{0, 1}}), 0);
  EXPECT_GT(found({{1, 0}, {0, 1}}), 0) << "one of no scale changes nothing";
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found({{0, 0.5f}}), 0);
  EXPECT_EQ(found({{1, 1}}), 0);
  EXPECT_EQ(found({{0, 1}, {1, 1}}), 0);
}

// Guesses are right or wrong by the adapted model's own choices.
TEST_P(Adapted, SpeculationChangesNoToken) {
  std::vector<std::vector<int32_t>> answers;
  for (const Speculation speculation : {Speculation::kOff, Speculation::kNgram}) {
    Session session(executor({{0, 1}}), nullptr, 128);
    const Generation generation = session.generate(prompt_, {.max_tokens = 32, .speculation = speculation});
    answers.push_back(generation.token_ids);
    if (speculation == Speculation::kNgram && session.executor().cache().can_rewind()) {
      EXPECT_GT(generation.timing.accepted, 0);
    }
  }
  EXPECT_EQ(answers[1], answers[0]);
}

TEST_P(Adapted, AnAdapterThatIsNotThereIsRefused) {
  const auto runs = executor({});
  Sequence sequence = runs->cache().start(0, {{3, 1}});
  const BatchItem item{&sequence, prompt_, Phase::kPrefill, Logits::kLast};
  EXPECT_THAT(testing::sentence([&] { runs->run(std::span(&item, 1)); }), HasSubstr("no adapter of this number"));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* checkpoint : {"lora-gemma3-a", "lora-qwen3-a"}) {
    out.push_back({checkpoint, "ref", 1e-4});
    out.push_back({checkpoint, "cpu", 1e-3});
    out.push_back({checkpoint, "webgpu", 1e-3});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Models, Adapted, ::testing::ValuesIn(cases()), [](const auto& one) {
  std::string name = one.param.checkpoint + "_" + one.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Files of adapters for a checkpoint, made from random numbers.
struct AdapterFiles {
  explicit AdapterFiles(const std::string& name) : loaded(LoadedModel::load(testing::model(name))) {}

  // Numbers that tell each row from every other.
  const std::vector<float>& numbers(int64_t rows, int64_t cols) {
    std::vector<float>& values = kept.emplace_back();
    testing::Random random(kept.size());
    for (int64_t i = 0; i < rows * cols; ++i) values.push_back(random.bell());
    return values;
  }
  void add(const std::string& tensor, int64_t rank, int64_t in, int64_t out) {
    for (const auto& [half, shape] : {std::pair(".lora_A.weight", std::vector<int64_t>{rank, in}),
                                      std::pair(".lora_B.weight", std::vector<int64_t>{out, rank})}) {
      peft.push_back({"base_model.model." + tensor + half,
                      "F32",
                      shape,
                      std::as_bytes(std::span(numbers(shape[0], shape[1]))),
                      {}});
    }
  }
  std::filesystem::path folder() {
    std::filesystem::create_directories(scratch / "peft");
    testing::spill(scratch / "peft/adapter_config.json", config.dump());
    write_safetensors(scratch / "peft/adapter_model.safetensors", peft);
    return scratch / "peft";
  }
  // The same as llama.cpp's converter writes it; `row` says which row of ours it puts in a place.
  std::filesystem::path gguf(const std::string& architecture, const std::vector<std::string>& names,
                             const std::function<int64_t(int64_t)>& row = {}) {
    GgufHeader header;
    header.put("general.architecture", architecture);
    header.put("general.type", "adapter");
    header.put("adapter.type", "lora");
    header.put("adapter.lora.alpha", config["lora_alpha"].get<float>());
    for (size_t i = 0; i < peft.size(); ++i)
      header.add_tensor(names[i / 2] + (i % 2 ? ".lora_b" : ".lora_a"), DType::kF32, peft[i].shape);
    GgufWriter writer(scratch / "adapter.gguf", header);
    for (size_t i = 0; i < peft.size(); ++i) {
      const size_t bytes = static_cast<size_t>(peft[i].shape[1]) * sizeof(float);
      for (int64_t r = 0; r < peft[i].shape[0]; ++r)
        writer.write(peft[i].bytes.subspan(static_cast<size_t>(i % 2 && row ? row(r) : r) * bytes, bytes));
    }
    writer.commit();
    return scratch / "adapter.gguf";
  }
  Adapter load(const std::filesystem::path& path, uint64_t memory = 1 << 30) {
    return load_adapter({path}, loaded.config, loaded.plan, memory);
  }
  std::string refused(const std::filesystem::path& path, uint64_t memory = 1 << 30) {
    return testing::sentence([&] { load(path, memory); });
  }

  testing::Scratch scratch;
  LoadedModel loaded;
  Json config = {{"peft_type", "LORA"}, {"r", 4}, {"lora_alpha", 12}, {"bias", "none"}};
  std::vector<RawTensor> peft;
  std::list<std::vector<float>> kept;
};

void expect_same(const Adapter& a, const Adapter& b) {
  ASSERT_EQ(a.pairs.size(), b.pairs.size());
  for (const auto& [slot, pair] : a.pairs) {
    const LoraPair* other = b.find(slot);
    ASSERT_TRUE(other) << slot;
    EXPECT_EQ(pair.a, other->a) << slot;
    EXPECT_EQ(pair.b, other->b) << slot;
    EXPECT_EQ(pair.scale, other->scale) << slot;
  }
}

TEST(AdapterFile, GgufIsThePeftFolderInOtherNames) {
  AdapterFiles files("qwen3-a");
  const ModelConfig& c = files.loaded.config;
  files.add("model.layers.1.mlp.down_proj", 4, c.ffn, c.hidden);
  files.add("model.layers.0.self_attn.q_proj", 4, c.hidden, c.heads * c.head_dim);
  const Adapter peft = files.load(files.folder());
  ASSERT_TRUE(peft.find("layer1.down_proj") && peft.find("layer0.q_proj"));
  EXPECT_EQ(peft.find("layer1.down_proj")->scale, 3);
  EXPECT_EQ(peft.find("layer1.down_proj")->b[5], std::next(files.kept.begin())->at(5 * 4));
  expect_same(files.load(files.gguf("qwen3", {"blk.1.ffn_down.weight", "blk.0.attn_q.weight"})), peft);
}

TEST(AdapterFile, RotatedPairsOfAGgufAreTakenApart) {
  AdapterFiles files("llama-a");
  const ModelConfig& c = files.loaded.config;
  files.add("model.layers.1.self_attn.k_proj", 4, c.hidden, c.kv_heads * c.head_dim);
  const Adapter peft = files.load(files.folder());
  // llama.cpp has i and i + half of a head side by side.
  const int64_t dim = c.head_dim;
  const auto ours = [&](int64_t r) { return r / dim * dim + r % dim / 2 + r % 2 * (dim / 2); };
  expect_same(files.load(files.gguf("llama", {"blk.1.attn_k.weight"}, ours)), peft);
}

TEST(AdapterFile, AMatrixThatHoldsSeveralGivesEachItsRows) {
  AdapterFiles files("phi3-cut");
  const ModelConfig& c = files.loaded.config;
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  files.add("model.layers.0.self_attn.qkv_proj", 4, c.hidden, q + 2 * kv);
  const Adapter adapter = files.load(files.folder());
  ASSERT_EQ(adapter.pairs.size(), 3u);
  const std::vector<float>& b = files.kept.back();  // [out, 4]
  int64_t first = 0;
  for (const auto& [slot, rows] :
       {std::pair("layer0.q_proj", q), std::pair("layer0.k_proj", kv), std::pair("layer0.v_proj", kv)}) {
    const LoraPair& pair = *adapter.find(slot);
    ASSERT_EQ(pair.out, rows);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t r = 0; r < 4; ++r) {
        ASSERT_EQ(pair.b[static_cast<size_t>(r * rows + row)], b[static_cast<size_t>((first + row) * 4 + r)]);
      }
    }
    EXPECT_EQ(pair.a, files.kept.front());
    first += rows;
  }
}

TEST(AdapterFile, RsLoraIsScaledByTheRootOfItsRank) {
  AdapterFiles files("qwen3-a");
  files.add("model.layers.1.mlp.down_proj", 4, files.loaded.config.ffn, files.loaded.config.hidden);
  files.config["use_rslora"] = true;
  EXPECT_EQ(files.load(files.folder()).find("layer1.down_proj")->scale, 6);
}

TEST(AdapterFile, WhatDoesNotFitIsRefusedWithASentence) {
  {
    AdapterFiles files("qwen3-a");
    files.add("model.layers.1.mlp.down_proj", 4, files.loaded.config.ffn + 1, files.loaded.config.hidden);
    EXPECT_THAT(files.refused(files.folder()),
                ::testing::AllOf(HasSubstr("does not fit the model"), HasSubstr("model.layers.1.mlp.down_proj")));
  }
  {
    AdapterFiles files("qwen3-a");
    files.add("model.layers.99.mlp.down_proj", 4, files.loaded.config.ffn, files.loaded.config.hidden);
    EXPECT_THAT(files.refused(files.folder()), HasSubstr("is no matrix of this model"));
  }
  {
    AdapterFiles files("qwen3moe-cut");
    files.add("model.layers.0.mlp.experts.3.down_proj", 4, 8, 8);
    EXPECT_THAT(files.refused(files.folder()), HasSubstr("experts are not adapted"));
  }
  AdapterFiles files("qwen3-a");
  files.add("model.layers.1.mlp.down_proj", 4, files.loaded.config.ffn, files.loaded.config.hidden);
  EXPECT_THAT(files.refused(files.folder(), 1000), HasSubstr("does not fit in memory"));
  EXPECT_THAT(files.refused(files.gguf("llama", {"blk.1.ffn_nonsense.weight"})), HasSubstr("is no matrix"));
  EXPECT_THAT(files.refused(files.gguf("nobody", {"blk.1.ffn_down.weight"})), HasSubstr("nobody"));
  for (const char* key : {"use_dora", "fan_in_fan_out"}) {
    files.config[key] = true;
    EXPECT_THAT(files.refused(files.folder()), HasSubstr(key));
    files.config[key] = false;
  }
  files.config["modules_to_save"] = Json::array({"lm_head"});
  EXPECT_THAT(files.refused(files.folder()), HasSubstr("modules_to_save"));
  EXPECT_THAT(files.refused(testing::model("qwen3-a")), HasSubstr("this is not an adapter"));
}

}  // namespace
}  // namespace doppler
