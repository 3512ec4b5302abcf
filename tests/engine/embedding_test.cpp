// Vectors of texts: against what an independent implementation computes, and whatever else is being made.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "convert/gguf_export.h"
#include "engine/backend.h"
#include "engine/embedding.h"
#include "engine/open_session.h"
#include "support/checkpoint.h"
#include "support/reference.h"
#include "support/runner.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::vector<int32_t>>;

LoadedModel folder() { return LoadedModel::load(testing::model("embeddinggemma-a")); }

// qwen3-a with sentence-transformers' modules beside it: the last token's row at length 1.
struct LastToken : testing::Checkpoint {
  LastToken() : Checkpoint("qwen3-a") {
    const std::filesystem::path to = save();
    std::filesystem::create_directory(to / "1_Pooling");
    testing::spill(to / "modules.json",
                   R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
                       {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                       {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])");
    testing::spill(to / "1_Pooling/config.json",
                   R"({"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false, "include_prompt": true})");
  }
};

// Texts of random tokens: short, of a page's length, and longer than what one turn runs of a model that looks back
// only.
Texts random_texts(int vocab) {
  std::minstd_rand random(3);
  Texts texts;
  for (const int length : {5, 1, 64, 300, 17}) {
    std::vector<int32_t>& text = texts.emplace_back();
    for (int i = 0; i < length; ++i) text.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(vocab)));
  }
  return texts;
}

// The largest difference of two unit vectors' numbers.
double difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

class Embeddings : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() != std::string("webgpu")) return;
    if (const std::string why = testing::missing_gpu(); !why.empty()) GTEST_SKIP() << why;
  }
  std::unique_ptr<Executor> executor(const LoadedModel& model, int context = 512, int block = 0) {
    return make_executor(model, GetParam(), {.context = context, .threads = 2, .block = block, .checked = true});
  }
};

TEST_P(Embeddings, StagesAndVectorAreTheReferences) {
  const LoadedModel model = folder();
  const testing::Reference reference(testing::model("embeddinggemma-a"));
  const auto runner = executor(model);
  auto errors = testing::stage_errors(*runner, model.plan, reference);
  EXPECT_EQ(errors.size() + 2, reference.by_step.size()) << "all but what comes behind the final norm";
  for (const auto& [stage, error] : errors) EXPECT_LE(error, GetParam() == std::string("ref") ? 1e-4 : 1e-3) << stage;

  const Texts prompt{reference.ids("prompt_ids")};
  const EmbeddingHead head(model);
  const std::vector<Embedding> made = embed_texts(head, *runner, prompt, 0);
  EXPECT_LE(difference(made[0], reference.stage("embedding")), 1e-4);

  LoadedModel pooled = folder();  // and nothing more
  pooled.config.embedding = {Pooling::kMean, {}, false};
  pooled.plan.dense.clear();
  const std::vector<Embedding> mean = embed_texts(EmbeddingHead(pooled), *runner, prompt, 0);
  EXPECT_LE(testing::relative_error(mean[0], reference.stage("pooled")),
            GetParam() == std::string("ref") ? 1e-4 : 1e-3);
}

TEST_P(Embeddings, HaveTheSameBitsAloneAndInCompany) {
  const LastToken last;
  for (const LoadedModel& model : {folder(), LoadedModel::load(last.folder())}) {
    SCOPED_TRACE(model.config.causal ? "last token" : "both ways");
    const Texts texts = random_texts(model.config.vocab);
    const EmbeddingHead head(model);
    const std::vector<Embedding> together = embed_texts(head, *executor(model), texts, 0);
    const auto other = executor(model, 400, 16);
    for (size_t i = texts.size(); i-- > 0;) {
      EXPECT_EQ(embed_texts(head, *other, {texts[i]}, 0)[0], together[i]) << texts[i].size() << " tokens";
    }
    // Nothing is found again of a text that begins another.
    if (!model.config.causal) {
      Sequence sequence = other->cache().start();
      EXPECT_EQ(other->cache().take_prefix(sequence, texts[3], other->phase_of_prompt(300)), 0);
    }
  }
}

// Every token counts for every other: another last one changes the first row, of a layer that sees all.
TEST_P(Embeddings, TokensSeeThoseBehindThem) {
  const LoadedModel model = folder();
  const auto runner = executor(model);
  Texts texts = random_texts(model.config.vocab);
  const auto first_row = [&](const std::vector<int32_t>& text) {
    Context context(*runner);
    const std::span<const float> rows = context.forward(text, Logits::kAll);
    EXPECT_EQ(rows.size(), text.size() * static_cast<size_t>(model.config.hidden));
    return std::vector<float>(rows.begin(), rows.begin() + model.config.hidden);
  };
  const std::vector<float> before = first_row(texts[2]);
  texts[2].back() ^= 1;
  EXPECT_NE(first_row(texts[2]), before);
  Context begun(*runner);
  begun.forward(texts[0], Logits::kNone);
  EXPECT_THAT(testing::sentence([&] { begun.forward(texts[1], Logits::kNone); }), HasSubstr("cannot be gone on from"));
}

TEST_P(Embeddings, TheLastTokensRowAtLengthOne) {
  const LastToken source;
  const LoadedModel model = LoadedModel::load(source.folder());
  const testing::Reference reference(testing::model("qwen3-a"));
  std::span<const float> row = reference.stage("final_norm");
  row = row.last(static_cast<size_t>(model.config.hidden));
  double square = 0;
  for (const float x : row) square += static_cast<double>(x) * x;
  std::vector<float> expected;
  for (const float x : row) expected.push_back(static_cast<float>(x / std::sqrt(square)));
  const auto runner = executor(model);
  const Texts prompt{reference.ids("prompt_ids")};
  const EmbeddingHead head(model);
  EXPECT_LE(difference(embed_texts(head, *runner, prompt, 0)[0], expected), 1e-4);
  const Embedding cut = embed_texts(head, *runner, prompt, 16)[0];
  ASSERT_EQ(cut.size(), 16u);
  double part = 0;
  for (size_t i = 0; i < 16; ++i) part += static_cast<double>(expected[i]) * expected[i];
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(cut[i], expected[i] / std::sqrt(part), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Backends, Embeddings, ::testing::Values("ref", "cpu", "webgpu"),
                         [](const auto& backend) { return std::string(backend.param); });

// What the dense layers and the pooling are travels in an artefact and in a GGUF.
TEST(EmbeddingModels, AreTheSameAsArtefactAndAsGguf) {
  testing::Scratch scratch;
  convert(testing::model("embeddinggemma-a"), scratch / "a", testing::with("f32"));
  std::filesystem::remove(scratch / "a/tokenizer.json");  // which GGUF has no name for
  export_gguf(scratch / "a", scratch / "m.gguf", {.threads = 2});
  const testing::Reference reference(testing::model("embeddinggemma-a"));
  for (const char* name : {"a", "m.gguf"}) {
    const LoadedModel model = LoadedModel::load(scratch / name);
    EXPECT_FALSE(model.config.causal) << name;
    EXPECT_EQ(model.config.embedding, (EmbeddingConfig{Pooling::kMean, {192, 96}, true})) << name;
    const auto runner = make_executor(model, "cpu", {.context = 64, .threads = 2});
    const std::vector<Embedding> made = embed_texts(EmbeddingHead(model), *runner, {reference.ids("prompt_ids")}, 0);
    EXPECT_LE(difference(made[0], reference.stage("embedding")), 1e-4) << name;
  }
}

TEST(EmbeddingModels, MakeNoText) {
  const LoadedModel model = folder();
  EXPECT_EQ(model.plan.steps.back().name, "final_norm");
  EXPECT_THAT(testing::sentence([&] { open_session(model, {.backend = "cpu"}); }), HasSubstr("makes vectors of texts"));
  const EmbeddingHead head(model);
  EXPECT_THAT(testing::sentence([&] { head.check_dimensions(97); }), HasSubstr("1 to 96"));
  const LoadedModel tiny = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  EXPECT_THAT(testing::sentence([&] { EmbeddingHead(tiny).check_dimensions(64); }), HasSubstr("512"));
}

TEST(EmbeddingModels, PromptsStandBeforeATextAndItsFrameStaysWhenItIsCut) {
  const LoadedModel model = folder();
  const Tokenizer& tokenizer = model.need_tokenizer();
  const auto tokens = [&](const EmbedText& options) { return tokens_to_embed(model, "a brave cat", options); };
  EXPECT_EQ(tokens({.longest = 100}), tokenizer.encode("a brave cat", true));
  EXPECT_EQ(tokens({.prompt_name = "document", .longest = 100}),
            tokenizer.encode("title: none | text: a brave cat", true));
  EXPECT_THAT(testing::sentence([&] { tokens({.prompt_name = "quarry", .longest = 100}); }),
              HasSubstr("one of document, query"));
  EXPECT_THAT(testing::sentence([&] { tokens({.longest = 12}); }), HasSubstr("at most 12 tokens, got 13"));
  std::vector<int32_t> cut = tokenizer.encode("a brav", true);  // <bos>, six letters, <eos>
  EXPECT_EQ(cut.size(), 8u);
  EXPECT_EQ(tokens({.longest = 8, .truncate = true}), cut);
}

// What the folder asks for and this engine does not do stops the load, by name.
TEST(EmbeddingModels, ModulesThatAreNotKnownAreRefused) {
  const auto refusal = [](const std::string& file, const std::string& from, const std::string& to) {
    testing::Scratch scratch;
    std::filesystem::copy(testing::model("embeddinggemma-a"), scratch / "m", std::filesystem::copy_options::recursive);
    std::string text = testing::slurp(scratch / "m" / file);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    testing::spill(scratch / "m" / file, text.replace(at, from.size(), to));
    return testing::sentence([&] { LoadedModel::load(scratch / "m"); });
  };
  EXPECT_THAT(refusal("2_Dense/config.json", "linear.Identity", "activation.Tanh"), HasSubstr("has an activation"));
  EXPECT_THAT(refusal("3_Dense/config.json", "\"bias\": false", "\"bias\": true"), HasSubstr("has a bias"));
  EXPECT_THAT(refusal("2_Dense/config.json", "192", "191"), HasSubstr("dense0.linear.weight has shape [192, 96]"));
  EXPECT_THAT(refusal("1_Pooling/config.json", "\"include_prompt\": true", "\"include_prompt\": false"),
              HasSubstr("left out of the pooling"));
  EXPECT_THAT(refusal("1_Pooling/config.json", "mean_tokens\": true", "max_tokens\": true"), HasSubstr("max_tokens"));
  EXPECT_THAT(refusal("1_Pooling/config.json", "cls_token\": false", "cls_token\": true"),
              HasSubstr("cls_token and mean_tokens"));
  EXPECT_THAT(refusal("modules.json", "models.Normalize", "models.LayerNorm"), HasSubstr("models.LayerNorm"));
  EXPECT_THAT(refusal("modules.json", "\"2_Dense\"", "\"../2_Dense\""), HasSubstr("outside the checkpoint"));
  EXPECT_THAT(refusal("config.json", "\"use_bidirectional_attention\": true", "\"use_bidirectional_attention\": false"),
              HasSubstr("use_bidirectional_attention"));
  testing::Scratch scratch;
  std::filesystem::copy(testing::model("embeddinggemma-a"), scratch / "m", std::filesystem::copy_options::recursive);
  std::filesystem::remove(scratch / "m/modules.json");
  EXPECT_THAT(testing::sentence([&] { LoadedModel::load(scratch / "m"); }), HasSubstr("modules.json"));
}

}  // namespace
}  // namespace doppler
