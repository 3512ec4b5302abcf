// A GGUF file that runs where it lies computes what the checkpoint it was made of does.
#include <gmock/gmock.h>

#include "convert/convert.h"
#include "convert/gguf_export.h"
#include "engine/backend.h"
#include "engine/session.h"
#include "import/gguf_model.h"
#include "support/reference.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

class GgufCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufCheckpoint, EveryStageAgreesWithTheReference) {
  const std::filesystem::path source = std::string(DOPPLER_TEST_DATA "/models/") + GetParam();
  testing::Scratch scratch;
  ConvertOptions options;
  options.recipe = recipe_named("f32");
  options.no_tokenizer = true;
  convert(source, scratch / "a", options);
  export_gguf(scratch / "a", scratch / "m.gguf", {.threads = 2});
  const LoadedModel model = LoadedModel::load(scratch / "m.gguf");
  const testing::Reference reference(source);
  for (const char* backend : {"ref", "cpu"}) {
    const auto executor = make_executor(model, backend, {.context = 256, .threads = 2, .block = 0, .checked = true});
    const auto errors = testing::stage_errors(*executor, model.plan, reference);
    EXPECT_EQ(errors.size(), reference.stages.tensors().size());
    for (const auto& [stage, error] : errors) EXPECT_LE(error, 1e-3) << backend << " " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufCheckpoint,
                         ::testing::Values("gemma3-b", "gemma2-a", "gptoss-a", "llama-a", "qwen3-a"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GgufTiny, SaysTheSameFromTheFile) {
  testing::Scratch scratch;
  const LoadedModel ours = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  export_gguf(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "m.gguf", {.threads = 2});
  EXPECT_LT(open_gguf(scratch / "m.gguf", 2).copied_bytes, 100'000u)
      << "only norms are copied; matrices stay in the file";
  const LoadedModel theirs = LoadedModel::load(scratch / "m.gguf");
  EXPECT_EQ(theirs.config.eos_ids, ours.config.eos_ids);
  const Json question = Json::array({{{"role", "user"}, {"content", "Tell me a story about a brave cat."}}});
  std::vector<std::string> texts;
  for (const LoadedModel* model : {&ours, &theirs}) {
    const std::string prompt = model->chat_template->render(question, Json(), true);
    Session session(make_executor(*model, "cpu", {.context = 512}), &*model->tokenizer, 512);
    GenerateOptions options{.max_tokens = 60, .end_ids = model->config.eos_ids};
    texts.push_back(session.generate(model->tokenizer->encode(prompt, false), options).text);
  }
  EXPECT_GT(texts[0].size(), 100u);
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(GgufTiny, OtherMixesStillKnowTheColourOfTheSky) {
  for (const char* quant : {"q4_0", "q4_k_m", "q8_0", "bf16"}) {
    testing::Scratch scratch;
    export_gguf(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "m.gguf", {.quant = quant, .threads = 2});
    const LoadedModel model = LoadedModel::load(scratch / "m.gguf");
    if (std::string(quant) == "q4_0") {
      EXPECT_THAT(model.notes, ::testing::Contains(HasSubstr("Q4_0, which there are no kernels for, held as Q8_0")));
    }
    Session session(make_executor(model, "cpu", {.context = 64}), &*model.tokenizer, 64);
    EXPECT_EQ(session.generate(model.tokenizer->encode("The color of the sky is", true), {.max_tokens = 2}).text,
              " blue.")
        << quant;
  }
}

}  // namespace
}  // namespace doppler
