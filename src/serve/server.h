// `doppler serve`: HTTP in front of the engine, with the routes, keys, limits and the log.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "serve/engine_thread.h"
#include "serve/http.h"

namespace doppler::serve {

struct ServeOptions {
  HttpOptions http;
  EngineOptions engine;
  std::vector<ModelSpec> models;           // at least one; the first is loaded at once
  std::string api_key;                     // empty: none is asked for
  bool no_auth = false;                    // binding beyond this machine without a key is meant
  std::vector<std::string> cors;           // origins of pages that may ask; "*": all
  std::vector<std::string> allowed_hosts;  // names under which the server is known, beside localhost and addresses
  bool log_json = false, log_text = false;
  std::chrono::milliseconds drain{30000};
};

// Serves until `stopping`. `listening` is called with the port once the first model is ready.
void serve(const ServeOptions& options, const std::function<bool()>& stopping,
           const std::function<void(uint16_t port)>& listening);

}  // namespace doppler::serve
