// The files of a batch after whatever may have happened to them, and answers in this process.
#include "serve/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "support/scratch.h"

namespace doppler::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BatchTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { spill(path(name), text); }
  std::string read(const std::string& name) const { return slurp(path(name)); }
  bool there(const std::string& name) const { return file_exists(path(name)); }

  static std::string ask(const std::string& id) {
    return R"({"custom_id": ")" + id + R"(", "url": "/v1/completions", "body": {}})" + "\n";
  }
  static std::string answer(const std::string& id, int status = 200) {
    return R"({"custom_id": ")" + id + R"(", "response": {"status_code": )" + std::to_string(status) + "}}";
  }
  Scratch folder_;
};

TEST_F(BatchTest, LinesThatAreNoRequestsAreToldByTheirLine) {
  write("in", ask("a") + "\n{]\n17\n{\"url\": 1}\n" + ask("b") + ask("a") + "{\"custom_id\": \"\xff\"}\n" + ask("c"));
  const BatchRequests requests(path("in"));
  ASSERT_EQ(requests.size(), 8u);
  std::vector<std::string> got;
  for (size_t i = 0; i < requests.size(); ++i) {
    const BatchRequests::Request request = requests.read(i);
    got.push_back(std::to_string(request.line) + " " + (request.code.empty() ? request.id : request.code));
    EXPECT_EQ(request.code.empty(), request.message.empty());
    EXPECT_EQ(request.code.empty() ? requests.find(request.id) : requests.find_line(request.line), i);
  }
  EXPECT_THAT(got, ElementsAre("1 a", "3 invalid_json_line", "4 invalid_json_line", "5 missing_required_parameter",
                               "6 b", "7 duplicate_custom_id", "8 invalid_json_line", "9 c"));
  EXPECT_THAT(requests.read(5).message, HasSubstr("that of line 1"));
  EXPECT_FALSE(requests.find_line(1));  // has an id of its own
}

TEST_F(BatchTest, EveryLineIsInOneShard) {
  std::string all;
  for (int i = 0; i < 23; ++i) all += ask(std::to_string(i));
  write("in", all);
  for (const int shards : {1, 2, 5, 23, 40}) {
    std::vector<std::string> ids;
    for (int shard = 1; shard <= shards; ++shard) {
      const BatchRequests requests(path("in"), shard, shards);
      EXPECT_LE(requests.size(), static_cast<size_t>(23 / shards + 1));
      for (size_t i = 0; i < requests.size(); ++i) ids.push_back(requests.read(i).id);
    }
    ASSERT_EQ(ids.size(), 23u);
    for (size_t i = 0; i < 23; ++i) EXPECT_EQ(ids[i], std::to_string(i));
  }
  EXPECT_FALSE(BatchRequests(path("in"), 1, 2).find("22"));
}

TEST_F(BatchTest, AnswersAppearWhenAllAreThere) {
  write("in", ask("a") + ask("b") + ask("c"));
  const BatchRequests requests(path("in"));
  {
    BatchAnswers answers(path("out"), requests, false);
    answers.add(2, answer("c"));
    answers.add(0, answer("a"));
    EXPECT_FALSE(there("out"));
    EXPECT_THAT(sentence([&] { BatchAnswers second(path("out"), requests, false); }), HasSubstr("being written"));
  }
  {
    BatchAnswers answers(path("out"), requests, false);
    EXPECT_EQ(answers.kept(), 2u);
    EXPECT_FALSE(answers.answered(1));
    answers.add(1, answer("b"));
    answers.finish();
  }
  EXPECT_EQ(read("out"), answer("c") + "\n" + answer("a") + "\n" + answer("b") + "\n");
  EXPECT_FALSE(there("out.incomplete"));
  BatchAnswers again(path("out"), requests, false);
  EXPECT_EQ(again.kept(), 3u);
  again.finish();
  EXPECT_TRUE(there("out"));
  EXPECT_FALSE(there("out.incomplete"));
}

TEST_F(BatchTest, AFileThatEndsAnywhereGoesOn) {
  write("in", ask("a") + ask("b") + ask("c"));
  const BatchRequests requests(path("in"));
  const std::string whole = answer("b") + "\n" + answer("a") + "\n" + answer("c") + "\n";
  const size_t one = whole.size() / 3;  // bytes of a line
  for (const size_t length : {size_t{0}, size_t{1}, one - 1, one, one + 1, 2 * one + 9, 3 * one - 1, 3 * one}) {
    write("out.incomplete", whole.substr(0, length));
    {
      BatchAnswers answers(path("out"), requests, true);
      EXPECT_EQ(answers.kept(),
                static_cast<size_t>(std::count(whole.begin(), whole.begin() + static_cast<long>(length), '\n')));
      for (size_t i = 0; i < 3; ++i) {
        if (!answers.answered(i)) answers.add(i, answer(std::string(1, static_cast<char>('a' + i))));
      }
      answers.finish();
    }
    ASSERT_EQ(read("out"), answer("a") + "\n" + answer("b") + "\n" + answer("c") + "\n") << length;
    ::unlink(path("out").c_str());
  }
}

TEST_F(BatchTest, WhatTheMachineFailedAtIsAskedAgain) {
  write("in", ask("a") + ask("b"));
  const BatchRequests requests(path("in"));
  write("out", answer("a", 500) + "\n" + answer("b", 400) + "\n");
  BatchAnswers answers(path("out"), requests, false);
  EXPECT_FALSE(answers.answered(0));
  EXPECT_TRUE(answers.answered(1));
  answers.add(0, answer("a"));
  answers.finish();
  EXPECT_EQ(read("out"), answer("b", 400) + "\n" + answer("a") + "\n");
}

TEST_F(BatchTest, AFinishedFileIsPutInOrderWhenThatIsAsked) {
  write("in", ask("a") + ask("b"));
  const BatchRequests requests(path("in"));
  write("out", answer("b") + "\n" + answer("a") + "\n");
  {
    BatchAnswers answers(path("out"), requests, true);
    EXPECT_EQ(answers.kept(), 2u);
    answers.finish();
  }
  EXPECT_EQ(read("out"), answer("a") + "\n" + answer("b") + "\n");
}

TEST_F(BatchTest, AnswersToSomethingElseAreNotTouched) {
  write("in", ask("a"));
  const BatchRequests requests(path("in"));
  for (const std::string name : {"out", "out.incomplete"}) {
    const std::string text = answer("other") + "\n";
    write(name, text);
    EXPECT_THAT(sentence([&] { BatchAnswers answers(path("out"), requests, false); }),
                HasSubstr(name + ":1): expected an answer to a line of " + path("in")));
    EXPECT_EQ(read(name), text);
    ::unlink(path(name).c_str());
  }
  write("out", "my diary\n");
  EXPECT_THAT(sentence([&] { BatchAnswers answers(path("out"), requests, false); }), HasSubstr("got no JSON"));
  EXPECT_EQ(read("out"), "my diary\n");
}

TEST_F(BatchTest, ARunThatWasKilledAfterTheNameWasTakenIsDone) {
  write("in", ask("a") + ask("b"));
  const BatchRequests requests(path("in"));
  write("out", answer("a") + "\n" + answer("b") + "\n");
  write("out.incomplete", answer("b") + "\n" + answer("a") + "\n");
  {
    BatchAnswers answers(path("out"), requests, true);
    EXPECT_EQ(answers.kept(), 2u);
    EXPECT_FALSE(there("out.incomplete"));
  }
  write("out", answer("a") + "\n");
  write("out.incomplete", answer("b") + "\n");
  EXPECT_THAT(sentence([&] { BatchAnswers answers(path("out"), requests, true); }), HasSubstr("Remove one of them"));
  EXPECT_TRUE(there("out.incomplete"));
}

class BatchRunTest : public BatchTest {
 protected:
  BatchOptions options(const std::string& output) const {
    BatchOptions options;
    options.input = path("in");
    options.output = path(output);
    options.models = {{"tiny", DOPPLER_SOURCE_DIR "/models/tiny"}};
    options.engine.backend = "cpu";
    options.engine.executor = {.context = 256, .threads = 1, .sequences = 4};
    options.engine.sequences = 4;
    options.engine.queue = 8;
    return options;
  }
  static std::string line(const std::string& id, const std::string& url, const std::string& body) {
    return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": ")" + url + R"(", "body": )" + body + "}\n";
  }
  // By custom_id, or by line.
  std::map<std::string, Json> answers(const std::string& name) const {
    std::map<std::string, Json> all;
    std::ifstream file(path(name));
    for (std::string text; std::getline(file, text);) {
      const Json json = parse_json(text, name);
      const std::string id =
          json["custom_id"].is_null() ? std::to_string(json["error"]["line"].get<int>()) : json["custom_id"].text();
      EXPECT_TRUE(all.emplace(id, json).second) << id << " came twice";
    }
    return all;
  }
};

TEST_F(BatchRunTest, EachKindIsAnsweredAsTheServerWould) {
  write("in",
        line("chat", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5})") +
            line("text", "/v1/completions", R"({"prompt": "Once", "max_tokens": 4, "n": 2})") +
            line("vector", "/v1/embeddings", R"({"input": ["Once", "upon"]})") +
            line("response", "/v1/responses", R"({"input": "Hi", "max_output_tokens": 3})") +
            line("stream", "/v1/completions", R"({"prompt": "Once", "stream": true})") +
            line("wrong", "/v1/completions", R"({"prompt": 7})") +
            line("long", "/v1/completions", R"({"prompt": ")" + std::string(2000, 'x') + "\"}") +
            line("model", "/v1/completions", R"({"prompt": "Once", "model": "large"})") +
            line("url", "/v1/images", "{}") + "no JSON\n");
  const BatchCounts counts = run_batch(options("out"));
  EXPECT_EQ(counts.all, 10u);
  EXPECT_EQ(counts.answered, 10u);
  EXPECT_EQ(counts.faulty, 6u);
  const std::map<std::string, Json> got = answers("out");
  ASSERT_EQ(got.size(), 10u);
  const auto body = [&](const std::string& id) -> const Json& { return got.at(id)["response"]["body"]; };
  const auto status = [&](const std::string& id) { return got.at(id)["response"]["status_code"].get<int>(); };
  for (const char* good : {"chat", "text", "vector", "response"}) {
    EXPECT_EQ(status(good), 200) << got.at(good);
    EXPECT_TRUE(got.at(good)["error"].is_null());
  }
  EXPECT_EQ(body("chat")["usage"]["completion_tokens"], Json(5));
  EXPECT_EQ(body("text")["choices"].size(), 2u);
  EXPECT_EQ(body("vector")["data"].size(), 2u);
  EXPECT_EQ(body("response")["object"], Json("response"));
  for (const char* bad : {"stream", "wrong", "long"}) EXPECT_EQ(status(bad), 400) << got.at(bad);
  EXPECT_EQ(body("stream")["error"]["param"], Json("stream"));
  EXPECT_EQ(body("wrong")["error"]["param"], Json("prompt"));
  EXPECT_EQ(status("model"), 404);
  EXPECT_TRUE(got.at("url")["response"].is_null());
  EXPECT_THAT(got.at("url")["error"]["message"].text(), HasSubstr("/v1/chat/completions"));
  EXPECT_EQ(got.at("10")["error"]["code"], Json("invalid_json_line"));
  // Once more: nothing is asked, nothing is written.
  EXPECT_EQ(run_batch(options("out")).kept, 10u);
}

TEST_F(BatchRunTest, AnswersDoNotDependOnTheRun) {
  std::string all;
  for (int i = 0; i < 24; ++i)
    all += line(std::to_string(i), "/v1/completions", R"({"prompt": "Once", "temperature": 1, "max_tokens": 12})");
  write("in", all);
  run_batch(options("whole"));
  BatchOptions cut = options("cut");
  cut.ordered = true;
  int runs = 0;
  for (bool ended = false; !ended; ++runs) {
    size_t answered = 0;
    cut.on_progress = [&](const BatchCounts& counts) { answered = counts.answered; };
    cut.stopping = [&] { return answered >= 5; };
    try {
      run_batch(cut);
      ended = true;
    } catch (const Failure& failed) {
      EXPECT_THAT(failed.what(), HasSubstr("goes on where it stopped"));
    }
  }
  EXPECT_GT(runs, 1);
  const std::map<std::string, Json> once = answers("whole"), often = answers("cut");
  ASSERT_EQ(once.size(), 24u);
  ASSERT_EQ(often.size(), 24u);
  std::set<std::string> texts;
  for (const auto& [id, answer] : once) {
    const Json& choices = answer["response"]["body"]["choices"];
    EXPECT_EQ(choices, often.at(id)["response"]["body"]["choices"]) << id;
    texts.insert(choices[0]["text"].text());
  }
  EXPECT_GT(texts.size(), 12u);  // each has a seed of its own
  std::ifstream file(path("cut"));
  std::string text;
  for (int i = 0; std::getline(file, text); ++i)
    EXPECT_EQ(parse_json(text, "cut")["custom_id"].text(), std::to_string(i));
}

TEST_F(BatchRunTest, AModelThatIsNotThereAnswersNothing) {
  write("in", line("a", "/v1/completions", R"({"prompt": "Once"})"));
  BatchOptions wrong = options("out");
  wrong.models = {{"none", path("none")}};
  EXPECT_THAT(sentence([&] { run_batch(wrong); }), HasSubstr(path("none")));
  EXPECT_FALSE(there("out"));
}

}  // namespace
}  // namespace doppler::serve
