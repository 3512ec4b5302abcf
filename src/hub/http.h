// HTTP as far as a download needs it: GET with ranges, several transfers at once, one thread. http.cpp alone knows
// libcurl.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace doppler {

struct HttpAnswer {
  int status = 0;                              // 0: no answer came
  std::string fault;                           // what cut the transfer; empty if it came to its end
  bool stopped = false;                        // the fault is that on_body wanted no more
  bool unreachable = false;                    // not even a connection: no name, no route, nobody listens
  std::map<std::string, std::string> headers;  // of the last answer, names in lower case
  std::string url;                             // after redirects
  std::string body;                            // what on_body did not take: answers that are no success

  bool ok() const { return fault.empty() && status >= 200 && status < 300; }
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  // A bearer token. It goes to the host, port and scheme of `url` and to no other, whatever redirects say; and never in
  // the clear to another machine.
  std::string token = {};
  std::string range = {};     // "0-99"; empty: all
  std::string if_range = {};  // a strong ETag: a range of anything else is answered with the whole
  // Bytes of a successful answer, whose head is known; false ends the transfer. Without it they go to `body`, 64 MiB
  // at most.
  std::function<bool(const HttpAnswer& head, std::string_view bytes)> on_body = {};
};

class HttpClient {
 public:
  struct Limits {
    long connect_seconds = 20;
    long stall_seconds = 30;  // without a byte
    int connections = 8;      // to one host
  };
  explicit HttpClient(const Limits& limits);
  HttpClient() : HttpClient(Limits{}) {}
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Begins a transfer; `done` is called from wait().
  void start(HttpRequest request, std::function<void(HttpAnswer)> done);
  // Moves the transfers on until something has happened, a tenth of a second at most.
  void wait();
  void drop_all();  // ends every transfer; their `done` is not called
  HttpAnswer get(HttpRequest request, const std::function<bool()>& cancelled = {});  // one, to its end

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

// "a b/c" → "a%20b%2Fc", or "a%20b/c" where slashes stay.
std::string url_encode(std::string_view text, bool keep_slashes);

// scheme, host in lower case, port (the scheme's own where none is named), path with its query.
struct Url {
  std::string scheme, host, path;
  int port = 0;
  bool same_origin(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
};
Url parse_url(const std::string& text);  // fails for anything but http and https

}  // namespace doppler
