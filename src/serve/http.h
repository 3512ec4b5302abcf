// HTTP as the rest of this room sees it: requests as plain structs, and answers that may be written by any thread,
// whole or piece by piece. http_server.cpp alone knows the library, Boost.Beast.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace doppler::serve {

struct HttpRequest {
  std::string method, path, query;             // the path without its query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string client;  // address of the peer
  std::string id;      // x-request-id: the client's own if it is harmless, else a new one
  std::chrono::steady_clock::time_point arrived;
  std::shared_ptr<void> room;  // what the body takes of HttpOptions::bodies, for as long as the request is kept

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// The answer to one request. Everything but post() and gone() belongs to the connection's own strand, where the handler
// is called and where post() runs its work; so no two of them ever run at once.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // Runs `work` on the strand. From any thread; the order is kept.
  virtual void post(std::function<void()> work) = 0;
  // The client hung up, or stopped reading.
  virtual bool gone() const = 0;
  // Called once, on the strand, when the client is found gone before the end.
  virtual void on_gone(std::function<void()> work) = 0;
  // Added to whatever is sent.
  virtual void add_header(std::string name, std::string value) = 0;

  virtual void send(int status, std::string_view type, std::string body, Headers headers = {}) = 0;
  // A stream: its head goes out at once; `ping` is sent whenever nothing else was for a few seconds.
  virtual void begin(std::string_view type, std::string ping) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;
  virtual bool begun() const = 0;  // a status was sent
  virtual int status() const = 0;
};

struct HttpAnswer {
  int status = 0;
  std::string body;  // JSON
  Headers headers = {};
};

// Who answers. All are called by the threads of the server, for several connections at once.
struct HttpHandlers {
  // The head is there, the body is not read: an answer is sent in place of it.
  std::function<std::optional<HttpAnswer>(const HttpRequest& head)> check;
  std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)> handle;
  // What to answer where a request cannot be read: its status and a sentence. `head` has what is known of it.
  std::function<HttpAnswer(const HttpRequest& head, int status, std::string_view sentence)> refuse;
};

struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;  // 0: any that is free
  int threads = 2;
  uint64_t body_limit = 16 << 20;  // bytes
  uint64_t bodies = 256 << 20;     // bytes of the bodies of all requests that are not yet answered; beyond it 503
  int connections = 1024;          // more are refused with 503
  std::chrono::milliseconds header_timeout{15000}, body_timeout{60000}, idle_timeout{75000}, write_timeout{60000},
      ping_every{5000};
};

class HttpServer {
 public:
  HttpServer(const HttpOptions& options, HttpHandlers handlers);
  ~HttpServer();

  uint16_t port() const;  // bound and listening since the constructor
  // Serves until `stopping` (asked many times per second) is true; then lets answers that have begun end. `draining` is
  // called when that begins; from then on the handlers refuse. After `deadline` what is left is cut off, as if its
  // clients had hung up.
  void run(const std::function<bool()>& stopping, const std::function<void()>& draining,
           std::chrono::milliseconds deadline);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace doppler::serve
