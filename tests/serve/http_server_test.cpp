// What the server does before anybody is asked: heads without bodies, too many connections, bodies that together are
// too large, and the end.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "loopback.h"
#include "serve/http.h"

namespace doppler::serve {
namespace {

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpOptions options) {
    options.port = 0;
    HttpHandlers handlers;
    handlers.check = [this](const HttpRequest& head) -> std::optional<HttpAnswer> {
      if (head.header("x-key") == "right") return std::nullopt;
      return HttpAnswer{.status = 401, .body = "no", .headers = {{"x-why", "key"}}};
    };
    handlers.handle = [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      if (request.path != "/never") return reply->send(200, "text/plain", request.body);
      const std::lock_guard lock(mutex_);
      kept_ = reply;
      reply->on_gone([this] {
        const std::lock_guard gone(mutex_);
        kept_ = nullptr;
        ++cut_;
      });
    };
    handlers.refuse = [this](const HttpRequest& head, int status, std::string_view sentence) {
      ++refused_;
      return HttpAnswer{.status = status, .body = head.path + ": " + std::string(sentence)};
    };
    server_ = std::make_unique<HttpServer>(options, std::move(handlers));
    thread_ = std::thread(
        [this] { server_->run([this] { return stopping_.load(); }, [] {}, std::chrono::milliseconds(50)); });
  }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  ~HttpServerTest() override { stop(); }
  static std::string post(const std::string& path, size_t length, const std::string& body = "") {
    return "POST " + path + " HTTP/1.1\r\nhost: x\r\nx-key: right\r\ncontent-length: " + std::to_string(length) +
           "\r\n\r\n" + body;
  }

  std::mutex mutex_;
  std::shared_ptr<HttpReply> kept_;
  std::atomic<int> cut_{0}, refused_{0};
  std::atomic<bool> stopping_{false};
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(HttpServerTest, AStrangersBodyIsNeverWaitedFor) {
  start({});
  Loopback client(server_->port());
  const std::string answer = client.ask("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 16000000\r\n\r\n");
  EXPECT_EQ(status_of(answer), 401);
  EXPECT_NE(answer.find("x-why: key\r\n"), std::string::npos);
  EXPECT_NE(answer.find("connection: close\r\n"), std::string::npos);
  EXPECT_EQ(body_of(answer), "no");
}

TEST_F(HttpServerTest, ARefusalWithoutABodyKeepsTheConnection) {
  start({});
  Loopback client(server_->port());
  EXPECT_EQ(status_of(client.ask("GET / HTTP/1.1\r\nhost: x\r\n\r\n")), 401);
  EXPECT_EQ(status_of(client.ask(post("/", 2, "ok"))), 200);
}

// A request that comes while the one before it is answered is read by whoever watches the socket, and answered next;
// also if its last bytes come at the moment when the watch ends.
TEST_F(HttpServerTest, RequestsThatComeEarlyAreAnsweredInTurn) {
  start({});
  Loopback client(server_->port());
  for (int round = 0; round < 500; ++round) {
    std::string said;
    for (int i = 0; i < 8; ++i) said += post("/", 3, std::to_string(100 + i));
    const size_t cut = said.size() - static_cast<size_t>(round % 200);
    client.say(said.substr(0, cut));
    client.say(said.substr(cut));
    for (int i = 0; i < 8; ++i) ASSERT_EQ(body_of(client.hear()), std::to_string(100 + i)) << "round " << round;
  }
}

TEST_F(HttpServerTest, ConnectionsBeyondTheBoundAreToldSo) {
  start({.connections = 1});
  Loopback first(server_->port());
  EXPECT_EQ(status_of(first.ask(post("/", 2, "ok"))), 200);
  Loopback second(server_->port());
  EXPECT_EQ(status_of(second.hear()), 503);
  EXPECT_EQ(refused_, 1);
  EXPECT_EQ(status_of(first.ask(post("/", 2, "ok"))), 200);
}

TEST_F(HttpServerTest, BodiesOfAllRequestsTogetherAreBounded) {
  start({.body_limit = 1000, .bodies = 1000});
  Loopback first(server_->port()), second(server_->port()), third(server_->port());
  first.say(post("/", 800, std::string(799, 'x')));
  // Until the first one's head was read the second finds room.
  std::string answer;
  for (int i = 0; i < 1000 && status_of(answer) != 503; ++i) {
    answer = Loopback(server_->port()).ask(post("/full", 300, std::string(300, 'x')));
  }
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_EQ(status_of(second.ask(post("/", 100, std::string(100, 'x')))), 200);  // that fits beside it
  first.say("x");
  EXPECT_EQ(body_of(first.hear()).size(), 800u);
  answer = third.ask(post("/", 900, std::string(900, 'x')));
  EXPECT_EQ(status_of(answer), 200);
}

TEST_F(HttpServerTest, WhatIsRefusedIsKnownByItsPath) {
  start({.body_limit = 1000});
  Loopback client(server_->port());
  const std::string answer = client.ask(post("/api/chat", 1001));
  EXPECT_EQ(status_of(answer), 413);
  EXPECT_EQ(body_of(answer).find("/api/chat: "), 0u);
}

TEST_F(HttpServerTest, AfterTheDeadlineAnswersAreCutAndLetGo) {
  start({});
  Loopback client(server_->port());
  client.say("GET /never HTTP/1.1\r\nhost: x\r\nx-key: right\r\n\r\n");
  std::weak_ptr<HttpReply> reply;
  for (int i = 0; i < 1000 && reply.expired(); ++i) {
    ::usleep(10000);
    const std::lock_guard lock(mutex_);
    reply = kept_;
  }
  EXPECT_FALSE(reply.expired());
  stop();
  EXPECT_EQ(cut_, 1);
  EXPECT_TRUE(reply.expired());
  EXPECT_TRUE(client.closed());
}

}  // namespace
}  // namespace doppler::serve
