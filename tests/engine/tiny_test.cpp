// The model that ships with Doppler: it must say what it was trained to say.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "convert/convert.h"
#include "engine/backend.h"
#include "engine/perplexity.h"
#include "engine/session.h"
#include "gpu/webgpu/device.h"
#include "support/reference.h"
#include "support/scratch.h"
#include "support/software_gpu.h"

namespace doppler {
namespace {

constexpr double kReferencePerplexity = 2.6725;  // of the original weights over tests/data/tiny/val_tokens.npy
constexpr int kWindow = 512;

// The tokens of a numpy file of u16.
std::vector<int32_t> validation_tokens() {
  const std::string file = read_text_file(DOPPLER_TEST_DATA "/tiny/val_tokens.npy");
  uint16_t header = 0;
  std::memcpy(&header, file.data() + 8, 2);
  std::vector<int32_t> tokens;
  for (size_t at = 10u + header; at + 1 < file.size(); at += 2) {
    uint16_t token = 0;
    std::memcpy(&token, file.data() + at, 2);
    tokens.push_back(token);
  }
  return tokens;
}

Json prompts() {
  return parse_json(read_text_file(DOPPLER_TEST_DATA "/tiny/reference.json"), "tiny/reference.json")["prompts"];
}

Session session(const LoadedModel& model, const char* backend = "cpu") {
  return Session(make_executor(model, backend, {.context = 1024}), &*model.tokenizer, 1024);
}

// Why not to run hundreds of tokens on this machine's GPU; empty: do. Software takes a second a token.
std::string no_time_for_gpu() {
  if (const std::string why = testing::missing_gpu(); !why.empty()) return why;
  if (std::getenv("DOPPLER_TEST_MODELS") || gpu::list_adapters()[0].type != "software") return "";
  return "software is slow; ./test --models runs this";
}

class Shipped : public ::testing::Test {
 protected:
  LoadedModel model_ = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
};

// The original bf16 weights are too large for the repository; these tests run where the reference data is.
class Original : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path source = testing::reference_folder("models/tiny");
    if (source.empty()) GTEST_SKIP() << "the original weights are not here; set DOPPLER_REFERENCE";
    ConvertOptions options;
    options.recipe = recipe_named("bf16");
    convert(source, scratch_ / "tiny", options);
    model_ = std::make_unique<LoadedModel>(LoadedModel::load(scratch_ / "tiny"));
  }
  testing::Scratch scratch_;
  std::unique_ptr<LoadedModel> model_;
};

TEST_F(Shipped, KnowsTheColourOfTheSky) {
  Session chat = session(model_);
  GenerateOptions options{.max_tokens = 2, .end_ids = model_.config.eos_ids};
  EXPECT_EQ(chat.generate(model_.tokenizer->encode("The color of the sky is", true), options).text, " blue.");
}

// What q4_k_m may cost is a promise: one percent of perplexity. It cannot be better than the original by more than the
// noise of the text: 20,480 tokens, whose scores differ by 0.14 nats (twice the root of the KL divergence, 0.0093).
TEST_F(Shipped, QuantisationCostsAtMostOnePercentOfPerplexity) {
  const auto executor = make_executor(model_, "cpu", {.context = kWindow});
  const double found = perplexity(*executor, validation_tokens(), kWindow);
  RecordProperty("perplexity", std::to_string(found));
  EXPECT_LE(found, 1.01 * kReferencePerplexity);
  EXPECT_GE(found, (1 - 3 * 0.14 / std::sqrt(20480)) * kReferencePerplexity);
}

TEST_F(Shipped, AnswersDoNotDependOnTheNumberOfThreads) {
  const std::vector<int32_t> prompt = model_.tokenizer->encode("Once upon a time", true);
  GenerateOptions options{.max_tokens = 60, .sampling = {.temperature = 0.9f, .top_k = 40, .seed = 3}};
  std::string first;
  for (const int threads : {1, 2, 3}) {
    Session chat(make_executor(model_, "cpu", {.context = 256, .threads = threads}), &*model_.tokenizer, 256);
    const std::string text = chat.generate(prompt, options).text;
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << threads << " threads";
  }
}

// Greedy or drawn: a guess is taken only where the same logits and the same draw give it anyway.
TEST_F(Shipped, SpeculationChangesNoToken) {
  const std::string story = "The cat sat on the mat. The dog sat on the mat. The cat sat on the mat. The dog sat on";
  int accepted = 0;
  for (const float temperature : {0.0f, 0.3f, 0.9f}) {
    for (uint64_t seed = 1; seed <= (temperature > 0 ? 4 : 1); ++seed) {
      GenerateOptions options{.max_tokens = 80, .sampling = {.temperature = temperature, .seed = seed}};
      const std::vector<int32_t> prompt = model_.tokenizer->encode(story, true);
      Session plain = session(model_), guessing = session(model_);
      const Generation expected = plain.generate(prompt, options);
      options.speculation = Speculation::kNgram;
      const Generation got = guessing.generate(prompt, options);
      EXPECT_EQ(got.token_ids, expected.token_ids) << temperature << " " << seed;
      EXPECT_EQ(got.stop_reason, expected.stop_reason);
      accepted += got.timing.accepted;
      // And the sequence holds what was said, nothing that was only guessed.
      std::vector<int32_t> more = prompt;
      more.insert(more.end(), expected.token_ids.begin(), expected.token_ids.end());
      more.push_back(prompt.back());
      options.speculation = Speculation::kOff;
      EXPECT_EQ(guessing.generate(more, options).token_ids, plain.generate(more, options).token_ids);
    }
  }
  EXPECT_GT(accepted, 50) << "nothing was guessed right";
}

// The shipped model drafts for itself (every guess of a greedy answer is right), and a damaged one for it.
TEST_F(Shipped, ADraftModelChangesNoToken) {
  LoadedModel damaged = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  for (Step& step : damaged.plan.steps) {
    if (auto* attention = std::get_if<Attention>(&step.op); attention && step.layer == 1) attention->scale /= 4;
  }
  const std::vector<int32_t> prompt = model_.tokenizer->encode("The little dog went to", true);
  for (const LoadedModel* draft : {&model_, &damaged}) {
    for (const float temperature : {0.0f, 0.9f}) {
      GenerateOptions options{.max_tokens = 90, .sampling = {.temperature = temperature, .seed = 3}};
      Session plain = session(model_), guessing = session(model_);
      guessing.set_draft(make_executor(*draft, "cpu", {.context = guessing.context() + DraftGuesser::kRoom}));
      std::vector<int32_t> text = prompt;
      for (int turn = 0; turn < 3; ++turn) {
        options.speculation = Speculation::kOff;
        const Generation expected = plain.generate(text, options);
        options.speculation = Speculation::kAuto;
        const Generation got = guessing.generate(text, options);
        ASSERT_EQ(got.token_ids, expected.token_ids) << temperature << " " << turn;
        if (draft == &model_ && temperature == 0) {
          EXPECT_GT(got.timing.accepted, 0);
          EXPECT_EQ(got.timing.accepted, got.timing.guessed);
        }
        if (turn == 0) text.insert(text.end(), got.token_ids.begin(), got.token_ids.end());  // goes on
        if (turn == 1) std::reverse(text.begin() + 1, text.end());                           // another text
      }
    }
  }
}

TEST_F(Shipped, APromptThatWasSeenIsFoundAgain) {
  Session chat(make_executor(model_, "cpu", {.context = 512, .sequences = 4}), &*model_.tokenizer, 512);
  const GenerateOptions options{.max_tokens = 12};
  std::vector<int32_t> prompt(400), other(400);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(3 + i * 7 % 900);
    other[i] = static_cast<int32_t>(5 + i * 11 % 900);
  }
  const Generation first = chat.generate(prompt, options);
  EXPECT_EQ(first.timing.found, 0);
  chat.generate(other, options);
  prompt.resize(390);  // the same but for its end
  prompt.insert(prompt.end(), {40, 41, 42, 43});
  const Generation again = chat.generate(prompt, options);
  EXPECT_EQ(again.timing.found, 384) << "whole pages of 16";
  Session fresh = session(model_);
  EXPECT_EQ(again.token_ids, fresh.generate(prompt, options).token_ids);
}

TEST_F(Shipped, AStopTextEndsTheAnswerAndIsNotShown) {
  Session chat = session(model_);
  std::string shown;
  GenerateOptions options{.max_tokens = 50, .stop_texts = {"blue"}};
  const Generation generation = chat.generate(model_.tokenizer->encode("The color of the sky is", true), options,
                                              [&](std::string_view piece) { return shown += piece, true; });
  EXPECT_EQ(generation.stop_reason, StopReason::kStopText);
  EXPECT_EQ(generation.text, " ");
  EXPECT_EQ(shown, generation.text);
}

TEST_F(Shipped, AConversationGoesOnWithoutRunningItsBeginningAgain) {
  Session chat = session(model_), fresh = session(model_);
  GenerateOptions options{.max_tokens = 20, .end_ids = model_.config.eos_ids};
  Json messages = Json::array({{{"role", "user"}, {"content", "What color is the sky?"}}});
  const auto tokens = [&] {
    return model_.tokenizer->encode(model_.chat_template->render(messages, Json(), true), false);
  };
  const Generation first = chat.generate(tokens(), options);
  EXPECT_EQ(first.text, "The color of the sky is blue.");
  messages.push_back({{"role", "assistant"}, {"content", first.text}});
  messages.push_back({{"role", "user"}, {"content", "What sound does a cow make?"}});
  const std::vector<int32_t> second = tokens();
  const Generation kept = chat.generate(second, options), whole = fresh.generate(second, options);
  EXPECT_EQ(kept.token_ids, whole.token_ids);
  EXPECT_LT(kept.timing.prefilled, whole.timing.prefilled);
}

TEST_F(Shipped, TheContextIsALimitThatIsSaid) {
  Session chat(make_executor(model_, "cpu", {.context = 8}), &*model_.tokenizer, 8);
  GenerateOptions options{.max_tokens = 50};
  const Generation generation = chat.generate(model_.tokenizer->encode("The color of", true), options);
  EXPECT_EQ(generation.stop_reason, StopReason::kContextFull);
  const std::vector<int32_t> nine(9, 5);
  EXPECT_NE(testing::sentence([&] { chat.generate(nine, options); }).find("longer than the context"),
            std::string::npos);
}

TEST_F(Shipped, CanBeInterrupted) {
  Session chat = session(model_);
  int pieces = 0;
  const Generation generation = chat.generate(model_.tokenizer->encode("Once upon a time", true), {.max_tokens = 100},
                                              [&](std::string_view) { return ++pieces < 5; });
  EXPECT_EQ(generation.stop_reason, StopReason::kInterrupted);
  EXPECT_EQ(generation.token_ids.size(), 5u);
}

// The same texts whoever computes them, whether the GPU chooses one token at a time or many.
void say_the_eight_texts(const LoadedModel& model, const char* backend, int decode_batch) {
  Session chat = session(model, backend);
  for (const Json& prompt : prompts()) {
    const auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(model.tokenizer->encode(prompt["prompt"].get<std::string>(), true), ids);
    GenerateOptions options{.max_tokens = static_cast<int>(prompt["greedy_ids"].size()),
                            .end_ids = model.config.eos_ids,
                            .decode_batch = decode_batch};
    EXPECT_EQ(chat.generate(ids, options).text, prompt["text"].get<std::string>()) << backend;
  }
}

TEST_F(Original, SaysTheEightTextsOfTheReference) { say_the_eight_texts(*model_, "cpu", 0); }

TEST_F(Original, SaysTheEightTextsOnAGpu) {
  if (const std::string why = no_time_for_gpu(); !why.empty()) GTEST_SKIP() << why;
  say_the_eight_texts(*model_, "webgpu", 8);
}

TEST_F(Shipped, ManyTokensASubmitAreTheSameTokens) {
  if (const std::string why = no_time_for_gpu(); !why.empty()) GTEST_SKIP() << why;
  const std::vector<int32_t> prompt = model_.tokenizer->encode("Once upon a time", true);
  std::vector<int32_t> first;
  for (const int batch : {1, 8}) {
    Session chat = session(model_, "webgpu");
    const GenerateOptions options{.max_tokens = 300, .decode_batch = batch};
    const std::vector<int32_t> ids = chat.generate(prompt, options).token_ids;
    ASSERT_EQ(ids.size(), 300u);
    if (first.empty()) first = ids;
    EXPECT_EQ(ids, first) << batch << " tokens a submit";
  }
}

TEST_F(Original, PerplexityIsWithinHalfAPercent) {
  const auto executor = make_executor(*model_, "cpu", {.context = kWindow});
  const double found = perplexity(*executor, validation_tokens(), kWindow);
  RecordProperty("perplexity", std::to_string(found));
  EXPECT_NEAR(found, kReferencePerplexity, 0.005 * kReferencePerplexity);
}

}  // namespace
}  // namespace doppler
