// A GGUF file, or a Hugging Face folder, that runs where it lies computes what the checkpoint does.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "convert/convert.h"
#include "convert/gguf_export.h"
#include "engine/backend.h"
#include "engine/session.h"
#include "format/gguf_writer.h"
#include "import/gguf_model.h"
#include "support/reference.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

// A value of one file's metadata for another's, as the types that our files have.
void put(GgufHeader& header, std::string_view key, const GgufValue& value) {
  if (const GgufArray* array = value.array()) {
    if (array->type == GgufType::kString)
      return header.put(key, std::vector<std::string>(array->strings.begin(), array->strings.end()));
    std::vector<double> numbers;
    for (uint64_t i = 0; i < array->count; ++i) numbers.push_back(array->number(i));
    if (array->type == GgufType::kFloat32) return header.put(key, std::vector<float>(numbers.begin(), numbers.end()));
    return header.put(key, std::vector<int32_t>(numbers.begin(), numbers.end()));
  }
  if (const bool* flag = value.boolean()) return header.put(key, *flag);
  if (!value.is_number()) return header.put(key, value.string());
  if (value.type == GgufType::kFloat32) return header.put(key, static_cast<float>(value.number()));
  header.put(key, static_cast<uint32_t>(value.number()));
}

class GgufCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufCheckpoint, EveryStageAgreesWithTheReference) {
  const std::filesystem::path own = std::string(DOPPLER_TEST_DATA "/models/") + GetParam();
  const std::filesystem::path source =
      std::filesystem::exists(own) ? own : testing::reference_folder(std::string("models/") + GetParam());
  if (source.empty()) GTEST_SKIP() << GetParam() << " is not here (DOPPLER_REFERENCE)";
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
    EXPECT_EQ(errors.size(), reference.by_step.size());
    for (const auto& [stage, error] : errors) EXPECT_LE(error, 1e-3) << backend << " " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufCheckpoint,
                         ::testing::Values("gemma3-b", "gemma2-a", "gptoss-a", "llama-a", "qwen3-a", "qwen2-a",
                                           "smollm3-a", "phi3-cut", "olmo2-cut", "olmo3-a", "granite-cut",
                                           "ministral3-cut", "qwen3moe-cut"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class CheckpointAsItIs : public ::testing::TestWithParam<const char*> {};

TEST_P(CheckpointAsItIs, EveryStageAgreesWithTheReference) {
  const std::filesystem::path source = std::string(DOPPLER_TEST_DATA "/models/") + GetParam();
  const LoadedModel model = LoadedModel::load(source);
  EXPECT_EQ(model.config.id, GetParam());
  EXPECT_THAT(model.quantization, ::testing::StartsWith("checkpoint "));
  EXPECT_THAT(model.notes, ::testing::Contains(HasSubstr("run as it is")));
  const testing::Reference reference(source);
  for (const char* backend : {"ref", "cpu"}) {
    const auto executor = make_executor(model, backend, {.context = 256, .threads = 2, .block = 0, .checked = true});
    const auto errors = testing::stage_errors(*executor, model.plan, reference);
    EXPECT_EQ(errors.size(), reference.stages.tensors().size());
    for (const auto& [stage, error] : errors) EXPECT_LE(error, 1e-3) << backend << " " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointAsItIs,
                         ::testing::Values("gemma3-b", "gemma2-a", "gptoss-a", "llama-a", "qwen3-a"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Cuts a GGUF file into parts of `per_part` tensors, as llama.cpp's tools do.
std::vector<std::filesystem::path> split_gguf(const std::filesystem::path& path, size_t per_part) {
  const GgufFile whole(path);
  const size_t count = (whole.tensors().size() + per_part - 1) / per_part;
  std::vector<std::filesystem::path> parts;
  for (size_t p = 0; p < count; ++p) {
    GgufHeader header;
    header.put("split.no", static_cast<uint32_t>(p));
    header.put("split.count", static_cast<uint32_t>(count));
    header.put("split.tensors.count", static_cast<uint32_t>(whole.tensors().size()));
    for (const auto& [key, value] : whole.metadata()) {
      if (p == 0) put(header, key, value);
    }
    const size_t end = std::min((p + 1) * per_part, whole.tensors().size());
    for (size_t i = p * per_part; i < end; ++i)
      header.add_tensor(whole.tensors()[i].name, whole.tensors()[i].dtype, whole.tensors()[i].shape);
    parts.push_back(path.parent_path() / fmt::format("part-{:05}-of-{:05}.gguf", p + 1, count));
    GgufWriter writer(parts.back(), header);
    for (size_t i = p * per_part; i < end; ++i) writer.write(whole.tensors()[i].bytes);
    writer.commit();
  }
  return parts;
}

TEST(GgufTiny, APartStandsForAllParts) {
  testing::Scratch scratch;
  export_gguf(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "m.gguf", {.threads = 2});
  const LoadedModel whole = LoadedModel::load(scratch / "m.gguf");
  const std::vector<std::filesystem::path> parts = split_gguf(scratch / "m.gguf", 20);
  ASSERT_GT(parts.size(), 2u);
  for (const std::filesystem::path& named : {parts.front(), parts.back()}) {
    const LoadedModel model = LoadedModel::load(named);
    EXPECT_EQ(model.weights.all().size(), whole.weights.all().size());
    Session session(make_executor(model, "cpu", {.context = 64}), &*model.tokenizer, 64);
    EXPECT_EQ(session.generate(model.tokenizer->encode("The color of the sky is", true), {.max_tokens = 2}).text,
              " blue.");
  }
  // A part under another part's name, a missing one, and the first one missing.
  std::filesystem::copy_file(parts[1], scratch / "kept");
  std::filesystem::copy_file(parts[2], parts[1], std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(testing::sentence([&] { LoadedModel::load(parts[0]); }), HasSubstr("not the part"));
  std::filesystem::remove(parts[1]);
  EXPECT_THAT(testing::sentence([&] { LoadedModel::load(parts[2]); }),
              ::testing::AllOf(HasSubstr("missing"), HasSubstr(parts[1].string())));
  std::filesystem::rename(scratch / "kept", parts[1]);
  std::filesystem::remove(parts[0]);
  EXPECT_THAT(testing::sentence([&] { LoadedModel::load(parts[1]); }), HasSubstr(parts[0].string()));
  std::filesystem::rename(parts[1], scratch / "renamed.gguf");
  EXPECT_THAT(testing::sentence([&] { LoadedModel::load(scratch / "renamed.gguf"); }),
              HasSubstr("-00002-of-0000" + std::to_string(parts.size())));
}

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
    Session session(make_executor(model, "cpu", {.context = 64}), &*model.tokenizer, 64);
    EXPECT_EQ(session.generate(model.tokenizer->encode("The color of the sky is", true), {.max_tokens = 2}).text,
              " blue.")
        << quant;
  }
}

}  // namespace
}  // namespace doppler
