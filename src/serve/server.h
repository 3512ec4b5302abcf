// `doppler serve`: HTTP in front of the engine, with the routes, keys, limits and the log.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "serve/access.h"
#include "serve/engine_thread.h"
#include "serve/http.h"

namespace doppler::serve {

struct ServeOptions {
  HttpOptions http;
  EngineOptions engine;
  std::vector<ModelSpec> models;  // at least one; the first is loaded at once
  AccessOptions access;
  bool no_auth = false;  // binding beyond this machine without a key is meant
  bool log_json = false, log_text = false;
  int log_file = 2;     // descriptor that log lines go to; negative: none
  int watch_file = -1;  // a terminal's, for a table of what runs; negative: none
  std::chrono::milliseconds drain{30000};
};

// Listens at once and serves until `stopping`; requests for a model that is being loaded wait. `listening` is called
// when connections are taken, `ready`, from another thread, once the first model is loaded. Fails if it cannot be.
struct ServeEvents {
  std::function<bool()> stopping;
  std::function<void(uint16_t port)> listening = {}, ready = {};
};
void serve(const ServeOptions& options, const ServeEvents& events);

}  // namespace doppler::serve
