// How fast a model runs here, beside what the machine allows.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/loaded_model.h"

namespace doppler {

struct InferenceWorkload {
  int prompt_tokens = 512;
  int tokens = 128;
  int runs = 5;
  int context = 0;       // 0: what the workload needs
  int threads = 0;       // 0: all cores
  int device = -1;       // which GPU
  int decode_batch = 8;  // tokens a GPU chooses in one go
  std::string backend = "auto";
};

struct InferenceResult {
  InferenceWorkload workload;
  std::string model, quantization, backend, cpu;
  uint64_t artefact_bytes = 0, kv_bytes = 0, peak_bytes = 0;
  double load_ms = 0;
  std::vector<double> prefill_tok_s, decode_tok_s, first_token_ms;  // one a run
  std::vector<double> token_ms;                                     // every decoded token of every run
  double bytes_per_token = 0;                                       // read by a decoded token, from the plan
  double bandwidth = 0;                                             // bytes a second this machine reads

  double decode_bytes_s() const;   // median
  double bandwidth_share() const;  // of the machine's
  Json to_json() const;
  std::string to_table() const;
};

// Where a decoded token's time goes on the device: one line for steps of the same name in different layers.
struct TokenProfile {
  struct Line {
    std::string name;  // "ffn_out"
    int dispatches = 0;
    double ns = 0;
  };
  std::vector<Line> lines;  // the most expensive first
  int dispatches = 0;
  double busy_ns = 0;  // inside dispatches
  double span_ns = 0;  // from the first to the last; the gaps are wider than in an unmeasured run
  Json to_json() const;
  std::string to_table() const;
};

using ModelLoader = std::function<LoadedModel()>;

// One token after `prompt_tokens`, the median of `runs`. Empty where the backend has no clock.
TokenProfile profile_token(const ModelLoader& load, const InferenceWorkload& workload);

// `progress` is told what is going on, a line at a time.
InferenceResult bench_inference(const ModelLoader& load, const InferenceWorkload& workload,
                                const std::function<void(std::string_view)>& progress);

}  // namespace doppler
