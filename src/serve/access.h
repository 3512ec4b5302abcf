// Who may ask, and whose share of the server a request counts to; all of it is in the head of a request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serve/http.h"

namespace doppler::serve {

struct AccessOptions {
  std::vector<std::string> keys = {};           // empty: none is asked for
  std::vector<std::string> cors = {};           // origins of pages that may ask; "*": all
  std::vector<std::string> allowed_hosts = {};  // names under which the server is known, beside localhost and addresses
  bool isolate = false;                         // what one client's prompts left in the cache is not found by another's
};

struct Client {
  std::string name;   // its key's number, or the address of the peer
  int key = 0;        // 1 and up; 0: none
  uint64_t salt = 0;  // of what it leaves in the cache
};

// What an answer to a page must carry. Throws ApiError where the page's origin may not ask.
Headers cors_headers(const AccessOptions& options, const HttpRequest& head);
// Throws ApiError where the server is not known by the name it was asked under, or the key is not right.
Client admit(const AccessOptions& options, const HttpRequest& head);

}  // namespace doppler::serve
