#include "hub/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <list>
#include <vector>

#include "base/error.h"
#include "base/version.h"

namespace doppler {
namespace {

constexpr size_t kMostBody = 64 << 20;  // bytes of an answer that is kept in memory
constexpr long kMostRedirects = 10;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host == "::1" || host.starts_with("127.");
}

struct Transfer {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  HttpRequest request;
  HttpAnswer answer;
  std::function<void(HttpAnswer)> done;
  bool overflow = false;
  char error[CURL_ERROR_SIZE] = {};

  ~Transfer() {
    if (easy) curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }
};

size_t take_header(char* data, size_t size, size_t count, void* self) {
  HttpAnswer& answer = static_cast<Transfer*>(self)->answer;
  std::string_view line(data, size * count);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // of a redirect's target, or after "100 Continue": only the last answer counts
    answer.headers.clear();
    return size * count;
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    answer.headers[lower(line.substr(0, colon))] = std::string(value);
  }
  return size * count;
}

size_t take_body(char* data, size_t size, size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::string_view bytes(data, size * count);
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
  transfer.answer.status = static_cast<int>(status);
  if (transfer.request.on_body && status >= 200 && status < 300) {
    transfer.answer.stopped = !transfer.request.on_body(transfer.answer, bytes);
    return transfer.answer.stopped ? 0 : bytes.size();
  }
  if (transfer.answer.body.size() + bytes.size() > kMostBody) {
    transfer.overflow = true;
    return 0;
  }
  transfer.answer.body += bytes;
  return bytes.size();
}

}  // namespace

struct HttpClient::Inside {
  CURLM* multi = nullptr;
  Limits limits;
  std::list<std::unique_ptr<Transfer>> transfers;
};

std::string HttpAnswer::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

HttpClient::HttpClient(const Limits& limits) : inside_(std::make_unique<Inside>()) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  inside_->limits = limits;
  inside_->multi = ready == CURLE_OK ? curl_multi_init() : nullptr;
  if (!inside_->multi) fail({.code = ErrorCode::kInternal, .what = "libcurl could not be started"});
  curl_multi_setopt(inside_->multi, CURLMOPT_MAX_HOST_CONNECTIONS, static_cast<long>(limits.connections));
  curl_multi_setopt(inside_->multi, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
}

HttpClient::~HttpClient() {
  drop_all();
  curl_multi_cleanup(inside_->multi);
}

void HttpClient::start(HttpRequest request, std::function<void(HttpAnswer)> done) {
  const Url url = parse_url(request.url);
  auto owned = std::make_unique<Transfer>();
  Transfer& transfer = *owned;
  transfer.request = std::move(request);
  transfer.done = std::move(done);
  transfer.easy = curl_easy_init();
  if (!transfer.easy) fail({.code = ErrorCode::kInternal, .what = "libcurl could not be started"});
  CURL* easy = transfer.easy;
  const auto set = [easy](CURLoption option, auto value) { curl_easy_setopt(easy, option, value); };
  const auto add_header = [&](const std::string& line) {
    transfer.headers = curl_slist_append(transfer.headers, line.c_str());
  };
  set(CURLOPT_URL, transfer.request.url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, kMostRedirects);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, url.scheme == "https" ? "https" : "http,https");
  set(CURLOPT_CONNECTTIMEOUT, inside_->limits.connect_seconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, inside_->limits.stall_seconds);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // each range has a connection of its own
  set(CURLOPT_ERRORBUFFER, transfer.error);
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_PRIVATE, &transfer);
  const std::string agent = fmt::format("doppler/{}", kVersion);
  set(CURLOPT_USERAGENT, agent.c_str());
  // libcurl keeps a header called Authorization from other hosts, ports and schemes since 7.83 (CVE-2022-27776).
  const std::string& token = transfer.request.token;
  if (!token.empty() && (url.scheme == "https" || is_loopback(url.host))) add_header("Authorization: Bearer " + token);
  if (!transfer.request.if_range.empty()) add_header("If-Range: " + transfer.request.if_range);
  if (!transfer.request.range.empty()) set(CURLOPT_RANGE, transfer.request.range.c_str());
  if (transfer.headers) set(CURLOPT_HTTPHEADER, transfer.headers);
  if (curl_multi_add_handle(inside_->multi, easy) != CURLM_OK) {
    fail({.code = ErrorCode::kInternal, .what = "libcurl refused a transfer", .where = transfer.request.url});
  }
  inside_->transfers.push_back(std::move(owned));
}

void HttpClient::wait() {
  int running = 0;
  curl_multi_perform(inside_->multi, &running);
  if (running > 0) curl_multi_poll(inside_->multi, nullptr, 0, 100, nullptr);
  curl_multi_perform(inside_->multi, &running);
  struct Ended {
    HttpAnswer answer;
    std::function<void(HttpAnswer)> done;
  };
  std::vector<Ended> ended;  // told once libcurl has nothing more to say, since they may start others
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(inside_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    CURL* easy = message->easy_handle;
    const auto it = std::find_if(inside_->transfers.begin(), inside_->transfers.end(),
                                 [&](const auto& transfer) { return transfer->easy == easy; });
    Transfer& transfer = **it;
    HttpAnswer& answer = transfer.answer;
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    const char* url = nullptr;
    curl_easy_getinfo(easy, CURLINFO_EFFECTIVE_URL, &url);
    answer.url = url ? url : transfer.request.url;
    if (code != CURLE_OK) {
      answer.fault = transfer.overflow   ? "the answer is too long"
                     : transfer.error[0] ? transfer.error
                                         : curl_easy_strerror(code);
      answer.unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                           code == CURLE_COULDNT_RESOLVE_PROXY || (code == CURLE_OPERATION_TIMEDOUT && status == 0);
    }
    curl_multi_remove_handle(inside_->multi, easy);
    ended.push_back({std::move(answer), std::move(transfer.done)});
    inside_->transfers.erase(it);
  }
  for (Ended& one : ended) one.done(std::move(one.answer));
}

void HttpClient::drop_all() {
  for (const auto& transfer : inside_->transfers) curl_multi_remove_handle(inside_->multi, transfer->easy);
  inside_->transfers.clear();
}

HttpAnswer HttpClient::get(HttpRequest request, const std::function<bool()>& cancelled) {
  HttpAnswer result;
  bool ended = false;
  const std::string where = request.url;
  start(std::move(request), [&](HttpAnswer answer) {
    result = std::move(answer);
    ended = true;
  });
  while (!ended) {
    wait();
    if (cancelled && cancelled()) {
      drop_all();
      fail({.code = ErrorCode::kFile, .what = "the request was interrupted", .where = where});
    }
  }
  return result;
}

std::string url_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        byte < 0x80 && (std::isalnum(byte) || std::string_view("-._~").find(c) != std::string_view::npos);
    if (plain || (keep_slashes && c == '/'))
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

Url parse_url(const std::string& text) {
  const auto refuse = [&](const char* what) {
    fail({.code = ErrorCode::kUsage,
          .what = what,
          .where = text,
          .expected = "http://HOST/… or https://HOST/…",
          .todo = "Check the address"});
  };
  CURLU* handle = curl_url();
  const auto part = [&](CURLUPart which) {
    char* value = nullptr;
    std::string out;
    if (curl_url_get(handle, which, &value, CURLU_DEFAULT_PORT) == CURLUE_OK && value) out = value;
    curl_free(value);
    return out;
  };
  Url url;
  const bool read = handle && curl_url_set(handle, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  if (read) {
    url.scheme = lower(part(CURLUPART_SCHEME));
    url.host = lower(part(CURLUPART_HOST));
    url.port = std::atoi(part(CURLUPART_PORT).c_str());
    url.path = part(CURLUPART_PATH);
    const std::string query = part(CURLUPART_QUERY);
    if (!query.empty()) url.path += "?" + query;
  }
  curl_url_cleanup(handle);
  if (!read) refuse("this is no address");
  if (url.scheme != "http" && url.scheme != "https") refuse("only http and https are fetched");
  return url;
}

}  // namespace doppler
