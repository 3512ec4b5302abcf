// An HTTP client that keeps many requests going at once, for load: every piece of an answer with the moment it came.
// One thread does it all. No TLS: what is measured is a server, not the proxy before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace doppler {

using LoadClock = std::chrono::steady_clock;

struct LoadTarget {
  std::string host;  // a name or an address, that of IPv6 in brackets
  int port = 80;
  std::string base;        // what stands before /v1 in paths; no slash at its end
  std::string api_key;     // empty: none
  bool remote = false;     // whether it may be another machine
  double timeout_s = 600;  // of one request
};

// A request, and what became of it. `sent` to `text` are the client's to fill in.
struct HttpExchange {
  std::string path;       // "/v1/models"
  std::string body = {};  // JSON to post; empty: a GET
  // Takes what comes of a body with status 200.
  std::function<void(std::string_view bytes, LoadClock::time_point at)> on_bytes = {};
  LoadClock::time_point sent = {}, ended = {};
  int status = 0;            // 0: no answer came
  std::string failure = {};  // a kind of failure, in a few words; empty: a whole answer came
  std::string text = {};     // a body with another status, or more about the failure
};

struct Load {
  int clients = 0;     // closed loop: so many, each with one request at a time
  double rate = 0;     // open loop: Poisson arrivals, so many a second, whatever is unanswered; 0: closed
  int requests = 0;    // that are sent at most; 0: no bound
  double seconds = 0;  // after which no more are sent; 0: no bound
  uint64_t seed = 0;   // of the arrivals
  // The next request, which is due at this moment; it must stay where it is until it is `done`.
  std::function<HttpExchange&(LoadClock::time_point due)> next;
  std::function<void(HttpExchange&)> done;
};

class LoadClient {
 public:
  // Looks the host up. Fails if it is not there, or is not this machine and `remote` was not said.
  explicit LoadClient(LoadTarget target);
  ~LoadClient();
  void ask(HttpExchange& exchange);  // this one alone
  void run(const Load& load);        // until the last one is done

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace doppler
