// How fast a model runs here, beside what the machine allows.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "bench/quality.h"
#include "engine/loaded_model.h"

namespace doppler {

class BenchSurface;
struct InferenceWorkload;
using OnStatus = std::function<void(std::string_view)>;  // what is going on, one line per call
// Loads a model with room for `context` tokens, ready to be measured (bench/surface.h).
using MakeSurface = std::function<std::unique_ptr<BenchSurface>(const std::filesystem::path&, const InferenceWorkload&,
                                                                int context, const OnStatus&)>;

struct InferenceWorkload {
  std::string name = "custom";
  int prompt_tokens = 512;
  int tokens = 128;
  int runs = 5;
  int context = 0;                         // 0: what the workload needs
  int threads = 0;                         // 0: all cores
  int device = -1;                         // which GPU
  uint64_t gpu_memory = 0;                 // bytes the model may take there; 0: no bound
  std::vector<AdapterSpec> adapters = {};  // beside the model's weights, in this process
  std::string kernels = {};                // chosen by hand, as parse_kernel_wishes() reads them
  int decode_batch = 0;                    // tokens a GPU chooses in one go; 0: as engine/decode_loop.h says
  std::string backend = "auto";
  std::vector<int> tapped_layers = {};   // decode with taps there: what looking costs
  std::vector<int> depths = {};          // decode again after so many tokens
  std::vector<int> prompt_lengths = {};  // prefill again with so many
  std::filesystem::path reference = {};  // reference.json of the model: prompt_ids and greedy_ids
  MakeSurface surface = {};              // where it runs; empty: in this process
};

// xs, s, m, l, xl: 64 to 8192 prompt tokens. Fails for another name.
InferenceWorkload named_workload(const std::string& name);

struct SweepPoint {
  int tokens = 0;  // before the decode, or of the prompt
  double tok_s = 0;
};

struct InferenceResult {
  InferenceWorkload workload;
  std::string model, model_hash, quantization, backend, surface;
  Json environment;
  size_t shards = 0, tensors = 0;
  uint64_t artefact_bytes = 0, kv_bytes = 0, peak_bytes = 0, peak_device_bytes = 0;
  std::optional<double> cold_load_ms;  // absent: a browser's profile had the model already
  double warm_load_ms = 0;
  std::vector<double> prefill_tok_s, decode_tok_s, first_token_ms;  // one per run
  std::vector<double> token_ms;                                     // every decoded token of every run
  double bytes_per_token = 0;                                       // read by a decoded token, from the plan
  uint64_t expert_hits = 0, expert_misses = 0;                      // while decoding, where experts are paged
  double submits_per_token = 0, dispatches_per_token = 0;
  std::vector<double> bandwidths;  // bytes per second this machine moved beside each run, or its GPU once
  Quality quality;
  std::vector<SweepPoint> by_depth, by_prompt;

  double decode_bytes_s() const;  // median
  double expert_hit_rate() const;
  double bandwidth() const;        // median
  double bandwidth_share() const;  // what decode reads of it: the median of the runs where it is measured beside each
  Json to_json() const;            // bench/result.schema.json
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
  double gpu_ns = 0;   // a token among others, with no clock between: what it really takes the GPU
  double encode_ns = 0, submit_ns = 0, read_ns = 0;  // the host's part of a token
  int batch = 0;                                     // tokens a submit, for these
  Json to_json() const;
  std::string to_table() const;
};

// One token after `prompt_tokens`, the median of `runs`. Empty where the backend has no clock.
TokenProfile profile_token(const std::filesystem::path& model, const InferenceWorkload& workload);

// Decode of an answer that repeats its prompt but for a few tokens, with speculation and without in turn.
struct SpeculationResult {
  std::string model, backend;
  std::vector<double> without_tok_s, with_tok_s;  // one per run
  int guessed = 0, accepted = 0;                  // of all runs
  Json to_json() const;
  std::string to_table() const;
};
SpeculationResult bench_speculation(const std::filesystem::path& model, const InferenceWorkload& workload);

InferenceResult bench_inference(const std::filesystem::path& model, const InferenceWorkload& workload,
                                const OnStatus& progress);

// Two models (or one with two workloads), a run of one, then a run of the other, so that the machine's moods meet both.
std::pair<InferenceResult, InferenceResult> bench_interleaved(const std::filesystem::path& a,
                                                              const InferenceWorkload& a_workload,
                                                              const std::filesystem::path& b,
                                                              const InferenceWorkload& b_workload,
                                                              const OnStatus& progress);

// An SVG of tokens per second against depth and against prompt length, one line per result (results of bench inference
// with sweeps). Fails if none of them has a sweep.
std::string plot_sweeps(const std::vector<Json>& results);
// Charts of the usual size, one below the other, as one SVG.
std::string stack_charts(const std::vector<std::string>& charts);

}  // namespace doppler
