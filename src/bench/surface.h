// Where a model runs while it is measured: in this process, or in a page of a browser.
#pragma once

#include <optional>

#include "bench/inference.h"
#include "engine/decode_loop.h"
#include "engine/perplexity.h"
#include "model/executor.h"

namespace doppler {

class BenchSurface {
 public:
  struct Facts {
    std::string surface = "native", backend;
    std::string browser;  // its name and version
    Json gpu;             // as in the schema's environment; null where none is used
    // From nothing in memory; in a browser from nothing stored, and absent where its profile already had the model.
    std::optional<double> cold_load_ms;
    double warm_load_ms = 0;
    uint64_t kv_bytes = 0;
  };
  virtual ~BenchSurface() = default;
  virtual const LoadedModel& model() const = 0;
  virtual const Facts& facts() const = 0;

  // From an empty context: the prompt, then `tokens` likeliest tokens (0: none). An empty prompt decodes from `first`.
  virtual GreedyRun run(std::span<const int32_t> prompt, int32_t first, int tokens) = 0;
  // Of every token but the first, from an empty context.
  virtual std::vector<TokenScore> score(std::span<const int32_t> tokens) = 0;

  virtual uint64_t peak_host_bytes() = 0;
  // Bytes per second that the machine, or its GPU, moves; measured now. A CPU reads `bytes` of them over and over.
  virtual double bandwidth(double bytes) = 0;
};

std::unique_ptr<BenchSurface> native_surface(const std::filesystem::path& model, const InferenceWorkload& workload,
                                             int context, const OnStatus& progress);

// A page of Chromium, headless unless the command says --headed: a script drives it, and we tell the script what to do.
struct BrowserOptions {
  std::vector<std::string> command;   // web/tools/bench.mjs, which answers JSON lines
  std::filesystem::path profile_dir;  // the browser's profile, kept; empty: one for this run alone
};

// Starts the browser and loads the model in its page.
std::unique_ptr<BenchSurface> browser_surface(const BrowserOptions& options, const std::filesystem::path& model,
                                              const InferenceWorkload& workload, int context, const OnStatus& progress);

}  // namespace doppler
