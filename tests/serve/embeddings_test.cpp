// An embedding is the mean of what the final norm gives, whatever it is cut into.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend.h"
#include "fake_reply.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

TEST(Embeddings, TheMeanOfTheFinalNorm) {
  const LoadedModel model = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Once upon a time there was a brave cat. ";
  const std::vector<int32_t> tokens = model.need_tokenizer().encode(text, true);
  ASSERT_GT(tokens.size(), 256u) << "one slice is no test";

  // All tokens in one call of an executor of our own.
  const std::unique_ptr<Executor> executor = make_executor(model, "cpu", {.context = 1024, .threads = 1});
  const auto hidden = static_cast<size_t>(model.config.hidden);
  std::vector<double> mean(hidden);
  size_t rows = 0;
  executor->set_tap([&](const Step& step, std::span<const float> data, int count, int) {
    if (step.name != "final_norm") return;
    for (size_t i = 0; i < data.size(); ++i) mean[i % hidden] += data[i];
    rows += static_cast<size_t>(count);
  });
  doppler::Context(*executor).forward(tokens, Logits::kAll);
  ASSERT_EQ(rows, tokens.size());
  double square = 0;
  for (const double x : mean) square += x * x;

  Metrics metrics;
  EngineThread engine({{"tiny", DOPPLER_SOURCE_DIR "/models/tiny"}},
                      {.backend = "cpu", .executor = {.context = 1024, .threads = 1}, .sequences = 2}, metrics);
  HttpRequest request;
  request.path = "/v1/embeddings";
  request.body = Json({{"input", text}}).dump();
  const auto reply = std::make_shared<FakeReply>();
  openai_embeddings(std::shared_ptr<Context>(new Context{std::move(request), reply, engine, /*log_text=*/false}));
  ASSERT_TRUE(reply->run());
  ASSERT_EQ(reply->status(), 200) << reply->body();
  const Json answer = parse_json(reply->body(), "the answer");
  EXPECT_EQ(answer["usage"]["prompt_tokens"].get<int64_t>(), static_cast<int64_t>(tokens.size()));
  const Json& vector = answer["data"][0]["embedding"];
  ASSERT_EQ(vector.size(), hidden);
  for (size_t i = 0; i < hidden; ++i) {
    EXPECT_NEAR(vector[i].get<double>(), mean[i] / std::sqrt(square), 1e-5)
        << i;  // sums of float rows in another order
  }
}

}  // namespace
}  // namespace doppler::serve
