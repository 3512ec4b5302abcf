#include "serve/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "serve/api.h"

namespace doppler::serve {
namespace {

bool same_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// "name:port", "[::1]:port" → the name.
std::string host_name(const std::string& host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_address(const std::string& host) {
  return host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string::npos;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

Headers cors_headers(const AccessOptions& options, const HttpRequest& head) {
  const std::string host = head.header("host"), origin = head.header("origin");
  if (origin.empty() || origin == "http://" + host || origin == "https://" + host) return {};
  const bool all = contains(options.cors, "*");
  if (!all && !contains(options.cors, origin)) {
    throw ApiError{.status = 403,
                   .message = fmt::format("pages of {} may not ask this server; --cors allows an origin", origin),
                   .type = "permission_error"};
  }
  Headers headers = {{"access-control-allow-origin", all ? "*" : origin}};
  if (!all) headers.emplace_back("vary", "origin");
  headers.emplace_back("access-control-expose-headers", "x-request-id");
  return headers;
}

Client admit(const AccessOptions& options, const HttpRequest& head) {
  const std::string host = host_name(head.header("host"));
  // A page whose name was pointed at this machine asks under its own name; without a key that is all that tells it.
  if (options.keys.empty() && !host.empty() && host != "localhost" && !is_address(host) &&
      !contains(options.allowed_hosts, host)) {
    throw ApiError{.status = 403,
                   .message = fmt::format("the server is not known as '{}'; --allow-host adds a name", host),
                   .type = "permission_error"};
  }
  Client client{.name = head.client};
  const bool open = head.path == "/health" || head.path == "/ready" || head.path == "/" || head.method == "OPTIONS";
  if (!options.keys.empty() && !open) {
    std::string key = head.header("x-api-key");
    if (const std::string bearer = head.header("authorization"); bearer.size() > 7 && bearer.starts_with("Bearer "))
      key = bearer.substr(7);
    for (size_t i = 0; i < options.keys.size(); ++i) {
      if (same_secret(key, options.keys[i])) client.key = static_cast<int>(i) + 1;
    }
    if (client.key == 0) {
      throw ApiError{.status = 401,
                     .message = key.empty() ? "an API key is needed, in Authorization: Bearer or in x-api-key"
                                            : "the API key is not the right one",
                     .code = "invalid_api_key",
                     .type = "authentication_error"};
    }
    client.name = fmt::format("key {}", client.key);
  }
  if (options.isolate) client.salt = std::hash<std::string>{}(client.name);
  return client;
}

}  // namespace doppler::serve
