// The library as a program outside meets it: include/doppler/doppler.h and nothing else of the tree.
#include <doppler/doppler.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include <unistd.h>

#include "support/adapter_file.h"

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kTiny = DOPPLER_SOURCE_DIR "/models/tiny";
constexpr const char* kEmbedding = DOPPLER_SOURCE_DIR "/tests/data/models/embeddinggemma-a";
const doppler::Options kCpu{.backend = "cpu", .context = 512};

TEST(Api, TenLinesTellAStory) {
  auto model = doppler::Model::open(kTiny);
  doppler::Chat chat(model, {.backend = "auto"});
  std::string said;
  const doppler::Reply reply = chat.say("What color is the sky?", [&](std::string_view piece) {
    said += piece;
    return true;
  });
  EXPECT_EQ(said, "The color of the sky is blue.");
  EXPECT_EQ(reply.text, said);
  EXPECT_EQ(reply.stop, doppler::Stop::kEnd);
  EXPECT_GT(reply.prompt_tokens, 5);
  ASSERT_EQ(chat.messages().size(), 2u);
  EXPECT_EQ(chat.messages()[1].content, said);
}

TEST(Api, AConversationRunsOnlyWhatIsNew) {
  doppler::Chat chat(doppler::Model::open(kTiny), kCpu);  // which holds the model
  chat.say("What color is the sky?");
  const doppler::Reply second = chat.say("Tell me a story.", {}, {.max_tokens = 8});
  EXPECT_EQ(second.stop, doppler::Stop::kMaxTokens);
  EXPECT_EQ(second.tokens.size(), 8u);
  EXPECT_LT(second.prompt_tokens_run, second.prompt_tokens - 10);
  chat.clear();
  EXPECT_TRUE(chat.messages().empty());
  EXPECT_EQ(chat.say("What color is the sky?").text, "The color of the sky is blue.");
}

TEST(Api, SaysWhatAModelIs) {
  const doppler::Model model = doppler::Model::open(kTiny);
  EXPECT_EQ(model.info().id, "tiny");
  EXPECT_TRUE(model.info().can_chat);
  EXPECT_GT(model.info().bytes, 1'000'000u);
  const std::vector<int32_t> tokens = model.tokenize("The color of the sky is", false);
  EXPECT_EQ(model.detokenize(tokens), "The color of the sky is");
  EXPECT_THROW(model.detokenize({-1}), doppler::Exception);
  EXPECT_THAT(std::string(doppler::version()), HasSubstr("."));
}

TEST(Api, CompletesTextsAndTokens) {
  const doppler::Model model = doppler::Model::open(kTiny);
  doppler::Completion completion(model, kCpu);
  EXPECT_EQ(completion.run("The color of the sky is", {}, {.max_tokens = 2}).text, " blue.");
  EXPECT_EQ(completion.run(model.tokenize("The color of the sky is"), {}, {.max_tokens = 2}).text, " blue.");
  EXPECT_EQ(completion.run("The color of the sky is", {}, {.stop = {"."}}).text, " blue");
  EXPECT_EQ(completion.backend(), "cpu");
}

double product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(Api, MakesVectorsOfTexts) {
  const doppler::Model model = doppler::Model::open(kEmbedding);
  EXPECT_FALSE(model.info().makes_text);
  EXPECT_EQ(model.info().embedding_width, 96);
  doppler::Embedder embedder(model, {.backend = "cpu", .context = 64, .threads = 1});
  const std::vector<std::vector<float>> all =
      embedder.embed(std::vector<std::string>{"a cat", "a longer text of a dog"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].size(), 96u);
  EXPECT_NEAR(product(all[0], all[0]), 1, 1e-6);
  EXPECT_EQ(embedder.embed("a longer text of a dog"), all[1]);
  const std::vector<float> cut = embedder.embed("a cat", {.dimensions = 32});
  ASSERT_EQ(cut.size(), 32u);
  EXPECT_NEAR(product(cut, cut), 1, 1e-6);
  EXPECT_NEAR(cut[1] / cut[0], all[0][1] / all[0][0], 1e-4);
  EXPECT_EQ(embedder.embed("cat", {.prompt_name = "document"}), embedder.embed("title: none | text: cat"));
  const std::string endless(100, 'x');
  EXPECT_THROW(embedder.embed(endless), doppler::Exception);
  EXPECT_EQ(embedder.embed(endless, {.truncate = true}), embedder.embed(std::string(62, 'x')));
  try {
    const doppler::Completion none(model, kCpu);
    FAIL() << "it makes no text";
  } catch (const doppler::Exception& exception) {
    EXPECT_EQ(exception.code(), doppler::Code::kUnsupported);
  }
  doppler::Embedder tiny(doppler::Model::open(kTiny), kCpu);
  const std::vector<float> story = tiny.embed("The cat sat on the mat.");
  EXPECT_GT(product(story, tiny.embed("The cat sat on a mat.")), product(story, tiny.embed("Rain fell for a week.")));
}

TEST(Api, AnAdapterChangesTheTextByItsScale) {
  const auto folder = std::filesystem::temp_directory_path() / ("doppler-api-lora-" + std::to_string(::getpid()));
  const std::string path = doppler::testing::write_adapter_of_tiny(folder, 1).string();
  const doppler::Model model = doppler::Model::open(kTiny);
  const auto text = [&](const std::vector<doppler::Lora>& lora) {
    doppler::Options options = kCpu;
    options.threads = 1;
    options.lora = lora;
    return doppler::Completion(model, options).run("The color of the sky is", {}, {.max_tokens = 8}).text;
  };
  const std::string plain = text({});
  EXPECT_NE(text({{path}}), plain);
  EXPECT_EQ(text({{path, 0}}), plain);
  EXPECT_EQ(text({{path, 0.5f}, {path, -0.5f}, {path, 0}}), plain) << "all of them are added up";
  EXPECT_EQ(text({{path, 0.5f}, {path, 0.5f}}), text({{path}}));
  EXPECT_THROW(text({{"/nowhere"}}), doppler::Exception);
  std::filesystem::remove_all(folder);
}

TEST(Api, ASeedRepeatsAndAbsenceDoesNot) {
  doppler::Completion completion(doppler::Model::open(kTiny), kCpu);
  const auto draw = [&](std::optional<uint64_t> seed) {
    return completion.run("Once upon a time", {}, {.max_tokens = 24, .temperature = 1.5f, .seed = seed}).text;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
  EXPECT_NE(draw({}), draw({}));
}

TEST(Api, StopsWhenAskedAndGoesOn) {
  doppler::Chat chat(doppler::Model::open(kTiny), kCpu);
  int pieces = 0;
  const doppler::Reply reply = chat.say("Tell me a story.", [&](std::string_view) { return ++pieces < 5; });
  EXPECT_EQ(reply.stop, doppler::Stop::kInterrupted);
  EXPECT_LE(reply.tokens.size(), 5u);
  EXPECT_EQ(chat.messages().size(), 2u) << "what was said stays";
  chat.clear();
  EXPECT_EQ(chat.say("What color is the sky?").text, "The color of the sky is blue.");
}

TEST(Api, ACallbacksExceptionComesThrough) {
  doppler::Chat chat(doppler::Model::open(kTiny), kCpu);
  struct Mine {};
  EXPECT_THROW(chat.say("Tell me a story.", [](std::string_view) -> bool { throw Mine(); }), Mine);
  chat.clear();
  EXPECT_EQ(chat.say("What color is the sky?").text, "The color of the sky is blue.");
}

TEST(Api, ErrorsHaveOurFields) {
  try {
    doppler::Model::open("/nowhere/at/all");
    FAIL();
  } catch (const doppler::Exception& error) {
    EXPECT_EQ(error.code(), doppler::Code::kFile);
    EXPECT_EQ(error.problem().where, "/nowhere/at/all");
    EXPECT_THAT(error.problem().what, HasSubstr("there is no model here"));
    EXPECT_THAT(error.problem().expected, HasSubstr("manifest.json"));
    EXPECT_FALSE(error.problem().todo.empty());
    EXPECT_THAT(std::string(error.what()), StartsWith(error.problem().what));
  }
  const doppler::Model model = doppler::Model::open(kTiny);
  const auto code = [](const auto& work) {
    try {
      work();
    } catch (const doppler::Exception& error) {
      return error.code();
    }
    return doppler::Code{};
  };
  EXPECT_EQ(code([&] { doppler::Chat(model, {.backend = "quantum"}); }), doppler::Code::kUsage);
  EXPECT_EQ(code([&] { doppler::Chat(model, {.context = -1}); }), doppler::Code::kUsage);
  doppler::Chat chat(model, {.backend = "cpu", .context = 64});
  EXPECT_EQ(code([&] { chat.say(std::string(4000, 'x')); }), doppler::Code::kUsage) << "longer than the context";
  EXPECT_TRUE(chat.messages().empty()) << "what failed leaves nothing";
  EXPECT_EQ(code([&] { chat.say("x", {}, {.max_tokens = 0}); }), doppler::Code::kUsage);
  EXPECT_EQ(code([&] { chat.say("x", {}, {.temperature = -1}); }), doppler::Code::kUsage);
  doppler::Completion completion(model, kCpu);
  EXPECT_EQ(code([&] { completion.run(std::vector<int32_t>{1 << 30}); }), doppler::Code::kUsage);
  EXPECT_EQ(code([&] { completion.run(std::vector<int32_t>{}); }), doppler::Code::kUsage);
}

TEST(Api, TwoThreadsWithAModelEach) {
  std::string said[2];
  {
    const auto speak = [](std::string& out) {
      doppler::Chat chat(doppler::Model::open(kTiny), {.backend = "cpu", .context = 256, .threads = 1});
      for (int i = 0; i < 3; ++i) out += chat.say("What color is the sky?").text + "\n";
    };
    std::jthread first([&] { speak(said[0]); }), second([&] { speak(said[1]); });
  }
  EXPECT_THAT(said[0], StartsWith("The color of the sky is blue.\n"));
  EXPECT_EQ(said[0], said[1]);
}

}  // namespace
