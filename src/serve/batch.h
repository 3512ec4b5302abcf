// `doppler batch`: the requests of a file, answered by this machine's models as the server would.
#pragma once

#include <functional>

#include "serve/batch_file.h"
#include "serve/engine_thread.h"

namespace doppler::serve {

struct BatchCounts {
  size_t all = 0, kept = 0, answered = 0;  // requests of the shard; of earlier runs; of this one
  size_t faulty = 0;                       // of this one's, that are errors
  size_t prompt_tokens = 0, tokens = 0;    // of this one's
};

struct BatchOptions {
  std::filesystem::path input, output;
  int shard = 1, shards = 1;
  bool ordered = false;  // the answers lie in the order of the requests
  EngineOptions engine;
  std::vector<ModelSpec> models;  // the first answers requests that name none
  std::function<bool()> stopping = {};
  std::function<void(const BatchCounts& so_far)> on_progress = {};  // a few times a second
};

// Fails if it is stopped before the end; the next run goes on.
BatchCounts run_batch(const BatchOptions& options);

}  // namespace doppler::serve
