// The whole server in this process: what it says while a model is loaded and while it goes down, and what it logs.
#include "serve/server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include "base/error.h"
#include "base/json.h"
#include "loopback.h"
#include "support/adapter_file.h"
#include "support/scratch.h"

namespace doppler::serve {
namespace {

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(::pipe(log_), 0);
  }
  void start(ServeOptions options = {}, std::vector<NamedAdapter> adapters = {}) {
    options.http.port = 0;
    options.models = {{"tiny \"1\"", DOPPLER_SOURCE_DIR "/models/tiny", std::move(adapters)}};
    options.engine.backend = "cpu";
    options.engine.executor = {.context = 256, .threads = 1, .sequences = 4};
    options.engine.on_event = [this](const EngineEvent& event) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return event.what != "loaded" || !hold_; });
    };
    options.log_json = true;
    options.log_file = log_[1];
    std::promise<uint16_t> port;
    thread_ = std::thread([this, options, &port] {
      serve(options, {.stopping = [this] { return stopping_.load(); },
                      .listening = [&](uint16_t number) { port.set_value(number); },
                      .ready = [this](uint16_t) { ready_ = true; }});
    });
    port_ = port.get_future().get();
  }
  void hold(bool hold) {
    const std::lock_guard lock(mutex_);
    hold_ = hold;
    changed_.notify_all();
  }
  void wait(const std::function<bool()>& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) ::usleep(10000);
    EXPECT_TRUE(condition());
  }
  std::string get(const std::string& path) {
    return Loopback(port_).ask("GET " + path + " HTTP/1.1\r\nhost: localhost\r\n\r\n");
  }
  static std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nhost: localhost\r\n" + headers +
           "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  // All lines, once the server has ended.
  std::string log() {
    stop();
    if (log_[1] >= 0) ::close(std::exchange(log_[1], -1));
    std::string all;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(log_[0], bytes, sizeof bytes)) > 0;)
      all.append(bytes, static_cast<size_t>(got));
    return all;
  }
  void stop() {
    hold(false);
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  ~ServerTest() override {
    stop();
    for (const int end : log_) {
      if (end >= 0) ::close(end);
    }
  }

  const testing::Scratch scratch_;
  int log_[2] = {-1, -1};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hold_ = false;
  std::atomic<bool> stopping_{false}, ready_{false};
  std::thread thread_;
  uint16_t port_ = 0;
};

TEST_F(ServerTest, ItListensWhileTheModelIsLoadedAndRequestsWait) {
  hold(true);
  start();
  EXPECT_EQ(status_of(get("/health")), 200);
  EXPECT_NE(get("/health").find("loading"), std::string::npos);
  const std::string not_yet = get("/ready");
  EXPECT_EQ(status_of(not_yet), 503);
  EXPECT_NE(not_yet.find("retry-after: "), std::string::npos);
  Loopback client(port_);
  client.say(post("/v1/completions", R"({"prompt": "Once", "max_tokens": 2})"));
  EXPECT_FALSE(ready_);
  hold(false);
  EXPECT_EQ(status_of(client.hear()), 200);
  wait([&] { return ready_.load(); });
  EXPECT_EQ(status_of(get("/ready")), 200);
}

TEST_F(ServerTest, AnAdapterIsChosenByTheModelsNameOrByAList) {
  const std::filesystem::path loud = testing::write_adapter_of_tiny(scratch_ / "loud", 1);
  const std::filesystem::path shy = testing::write_adapter_of_tiny(scratch_ / "shy", 2);
  start({}, {{"loud", {loud, 0.5f}}, {"shy", {shy}}});
  wait([&] { return ready_.load(); });
  const auto json_of = [](const std::string& answer) {
    return parse_json(answer.substr(answer.find("\r\n\r\n") + 4), "an answer");
  };
  const auto models = json_of(get("/v1/models"))["data"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[1]["id"].get<std::string>(), "tiny \"1\":loud");
  EXPECT_EQ(models[1]["parent"].get<std::string>(), "tiny \"1\"");
  EXPECT_EQ(json_of(get("/lora-adapters"))[0]["scale"].get<double>(), 0.5);
  const auto ask = [&](const std::string& model, const std::string& more = "") {
    const std::string body =
        R"({"prompt": "The color of the sky is", "max_tokens": 8, "temperature": 0, "model": "tiny \"1\")" + model +
        "\"" + more + "}";
    const std::string answer = Loopback(port_).ask(post("/v1/completions", body));
    EXPECT_EQ(status_of(answer), 200) << answer;
    const Json json = json_of(answer);
    EXPECT_EQ(json["model"].get<std::string>(), "tiny \"1\"" + model);
    return json["choices"][0]["text"].get<std::string>();
  };
  const std::string plain = ask(""), one = ask(":loud"), other = ask(":shy");
  EXPECT_NE(one, plain);
  EXPECT_NE(other, plain);
  EXPECT_NE(other, one);
  // The list says all: what it does not name is not used, not even what the model's name chooses.
  EXPECT_EQ(ask("", R"(, "lora": [{"id": 0, "scale": 0.5}])"), one);
  EXPECT_EQ(ask(":loud", R"(, "lora": [{"id": 1}])"), other);
  EXPECT_EQ(ask(":loud", R"(, "lora": [])"), plain);
  EXPECT_EQ(ask(""), plain) << "what others left in the cache is not found";
  for (const char* list : {R"([{"id": 2}])", R"([{"id": 0}, {"id": 0}])", R"([{"scale": 1}])", R"([3])"}) {
    const std::string body = R"({"prompt": "Once", "lora": )" + std::string(list) + "}";
    const std::string answer = Loopback(port_).ask(post("/v1/completions", body));
    EXPECT_EQ(status_of(answer), 400) << answer;
    EXPECT_NE(answer.find("lora"), std::string::npos) << answer;
  }
  EXPECT_EQ(status_of(get("/v1/models/tiny")), 404);
}

TEST_F(ServerTest, MetricsAreThereWhileItGoesDown) {
  hold(true);
  start();
  Loopback client(port_);
  client.say(post("/v1/completions", R"({"prompt": "Once", "max_tokens": 2})"));
  Loopback watcher(port_);  // until the other was read, a stop would end both
  wait([&] { return get("/metrics").find("doppler_num_requests_running") != std::string::npos; });
  ::usleep(100000);
  stopping_ = true;
  wait([&] { return status_of(get("/health")) == 503; });
  const std::string metrics = get("/metrics");
  EXPECT_EQ(status_of(metrics), 200);
  EXPECT_NE(metrics.find(R"(models="tiny \"1\"")"), std::string::npos);
  EXPECT_EQ(status_of(watcher.ask(post("/v1/completions", "{}"))), 503);
  hold(false);
  EXPECT_EQ(status_of(client.hear()), 200);
}

TEST_F(ServerTest, RefusalsAreLoggedCountedAndInTheWordsOfTheirApi) {
  ServeOptions options;
  options.access.keys = {"secret"};
  options.http.body_limit = 1000;
  start(options);
  const std::string key = "x-api-key: secret\r\n";
  const auto ask = [&](const std::string& path, const std::string& headers, const std::string& body) {
    return Loopback(port_).ask(post(path, body, headers));
  };
  const std::string unknown = ask("/v1/messages", "x-request-id: mine\r\n", "{}");
  EXPECT_EQ(status_of(unknown), 401);
  EXPECT_EQ(parse_json(body_of(unknown), "body")["error"]["type"].text(), "authentication_error");
  EXPECT_NE(unknown.find("x-request-id: mine\r\n"), std::string::npos);
  const std::string large = ask("/api/chat", key, std::string(1001, 'x'));
  EXPECT_EQ(status_of(large), 413);
  EXPECT_TRUE(parse_json(body_of(large), "body")["error"].is_string());
  const std::string metrics = Loopback(port_).ask("GET /metrics HTTP/1.1\r\nhost: x\r\n" + key + "\r\n");
  EXPECT_NE(metrics.find("doppler_http_responses_total{status=\"401\"} 1\n"), std::string::npos);
  EXPECT_NE(metrics.find("doppler_http_responses_total{status=\"413\"} 1\n"), std::string::npos);
  const std::string lines = log();
  EXPECT_NE(lines.find(R"("id":"mine")"), std::string::npos);
  EXPECT_NE(lines.find(R"("path":"/api/chat","status":413)"), std::string::npos);
  EXPECT_EQ(lines.find("secret"), std::string::npos);
}

TEST_F(ServerTest, ALogThatNobodyReadsDoesNotEndTheServer) {
  ::close(std::exchange(log_[0], -1));
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(status_of(get("/nothing")), 404);
  wait([&] {
    const std::string metrics = get("/metrics");
    return metrics.find("doppler_log_lines_dropped_total 0\n") == std::string::npos;
  });
}

TEST_F(ServerTest, TokenIdsAreNotCutToThirtyTwoBits) {
  start();
  EXPECT_EQ(status_of(Loopback(port_).ask(post("/detokenize", R"({"tokens": [4294967300]})"))), 400);
  EXPECT_EQ(status_of(Loopback(port_).ask(post("/detokenize", R"({"tokens": [-1]})"))), 400);
  EXPECT_EQ(status_of(Loopback(port_).ask(post("/detokenize", R"({"tokens": [4]})"))), 200);
}

TEST_F(ServerTest, AnswersThatAreCutOffAreLogged) {
  ServeOptions options;
  options.drain = std::chrono::milliseconds(0);
  start(options);
  Loopback client(port_);
  client.say(
      post("/v1/completions",
           R"({"prompt": "Once", "stream": true, "n": 28, "max_tokens": 250, "logit_bias": {"1": -100, "5": -100}})",
           "x-request-id: cut-off\r\n"));
  wait([&] { return get("/metrics").find("doppler_num_requests_running 0\n") == std::string::npos; });
  const std::string lines = log();
  const size_t at = lines.find(R"("id":"cut-off")");
  ASSERT_NE(at, std::string::npos) << lines;
  EXPECT_NE(lines.find(R"("finish":"cut")", at), std::string::npos);
}

// What is said when the server is ready would be drawn over otherwise.
TEST_F(ServerTest, TheTableBeginsWhenTheServerIsReady) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  hold(true);
  ServeOptions options;
  options.watch_file = ends[1];
  start(options);
  EXPECT_EQ(status_of(get("/health")), 200);
  pollfd drawn{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&drawn, 1, 50), 0);
  hold(false);
  EXPECT_EQ(::poll(&drawn, 1, 60000), 1);
  EXPECT_TRUE(ready_);
  stop();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Serve, AModelThatCannotBeLoadedEndsIt) {
  ServeOptions options;
  options.http.port = 0;
  options.models = {{"none", "/nowhere/at/all"}};
  EXPECT_THROW(serve(options, {.stopping = [] { return false; }}), Failure);
}

}  // namespace
}  // namespace doppler::serve
