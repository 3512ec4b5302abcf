// Whatever goes wrong while a request is answered is that request's own error, and the server goes on.
#include <gtest/gtest.h>

#include <new>

#include "base/error.h"
#include "fake_reply.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

class AnsweringTest : public testing::Test {
 protected:
  ContextPtr make(const std::string& path, const Json& body) {
    HttpRequest request;
    request.path = path;
    request.body = body.dump();
    auto context = std::shared_ptr<Context>(
        new Context{std::move(request), std::make_shared<FakeReply>(), engine_, /*log_text=*/false});
    context->on_end = [this](const Context&) { ++ended_; };
    return context;
  }
  static FakeReply& reply(const ContextPtr& context) { return static_cast<FakeReply&>(*context->reply); }

  Metrics metrics_;
  int ended_ = 0;
  EngineThread engine_{{{"tiny", DOPPLER_SOURCE_DIR "/models/tiny"}},
                       {.backend = "cpu", .executor = {.context = 128, .threads = 1}, .sequences = 2},
                       metrics_};
};

ApiError error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    return current_error();
  }
  return {.status = 0};
}

TEST(CurrentError, TheStatusSaysWhoseFaultItIs) {
  const auto status = [](ErrorCode code) { return error_of([&] { fail({.code = code, .what = "x"}); }).status; };
  EXPECT_EQ(status(ErrorCode::kUsage), 400);
  EXPECT_EQ(status(ErrorCode::kFormat), 400);
  EXPECT_EQ(status(ErrorCode::kUnsupported), 400);
  EXPECT_EQ(status(ErrorCode::kMemory), 503);
  EXPECT_EQ(status(ErrorCode::kFile), 500);
  EXPECT_EQ(status(ErrorCode::kDevice), 500);
  EXPECT_EQ(status(ErrorCode::kInternal), 500);
  EXPECT_EQ(error_of([] { throw std::bad_alloc(); }).status, 503);
  EXPECT_EQ(error_of([] { throw std::runtime_error("x"); }).status, 500);
  EXPECT_EQ(error_of([] { throw 5; }).status, 500);
  EXPECT_EQ(error_of([] { throw ApiError{.status = 404}; }).status, 404);
}

TEST_F(AnsweringTest, WorkWithAModelThatThrowsIsAnErrorInTheFormatsWords) {
  for (const auto& [path, type] : {std::pair("/v1/chat/completions", "server_error"), {"/v1/messages", "api_error"}}) {
    const ContextPtr context = make(path, Json::object());
    with_model(context, "tiny", [](const auto&) { throw std::runtime_error("boom"); });
    ASSERT_TRUE(reply(context).run());
    EXPECT_EQ(reply(context).status(), 500);
    EXPECT_EQ(parse_json(reply(context).body(), "body")["error"]["type"].text(), type);
  }
  const ContextPtr context = make("/v1/chat/completions", Json::object());
  with_model(context, "tiny", [](const auto&) { throw std::bad_alloc(); });
  ASSERT_TRUE(reply(context).run());
  EXPECT_EQ(reply(context).status(), 503);
}

class BrokenWire : public Wire {
 public:
  BrokenWire(ContextPtr context, bool at_start) : context_(std::move(context)), at_start_(at_start) {}
  void start() override {
    if (at_start_) throw std::bad_alloc();
  }
  void delta(int, const AnswerParts&, const Piece&, const Choice&) override { throw std::runtime_error("boom"); }
  void finish(int, const Choice&) override {}
  void end(const std::vector<Choice>&, const Usage&) override {}
  void error(const ApiError& error) override { send_error(*context_, error); }

 private:
  ContextPtr context_;
  bool at_start_;
};

TEST_F(AnsweringTest, AnAnswerThatCannotBeWrittenEndsAlone) {
  for (const bool at_start : {false, true}) {
    const ContextPtr context = make("/v1/completions", Json::object());
    Ask ask;
    ask.chat = false;
    ask.prompt = "Once upon a time";
    ask.temperature = 0;
    answer(context, ask, [&](const ServedModel&) { return std::make_unique<BrokenWire>(context, at_start); });
    ASSERT_TRUE(reply(context).run());
    EXPECT_EQ(reply(context).status(), at_start ? 503 : 500);
    EXPECT_EQ(context->finish, "error");
  }
  // The engine was told to stop, and still answers.
  const ContextPtr after = make("/v1/completions", {{"prompt", "The"}, {"max_tokens", 2}});
  openai_completions(after);
  ASSERT_TRUE(reply(after).run());
  EXPECT_EQ(reply(after).status(), 200) << reply(after).body();
}

TEST_F(AnsweringTest, ARequestGoesWhereItsConnectionIsDropped) {
  ContextPtr context = make("/v1/completions", {{"prompt", "The"}, {"max_tokens", 100}, {"stream", true}});
  openai_completions(context);
  ASSERT_TRUE(reply(context).run_one());  // the model is there and the engine was asked
  std::shared_ptr<FakeReply> connection = std::static_pointer_cast<FakeReply>(context->reply);
  context.reset();
  engine_.stop();
  connection->drop_work();
  connection->drop_work();  // what was let go with the first may have been posted again
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(connection.use_count(), 1);
}

}  // namespace
}  // namespace doppler::serve
