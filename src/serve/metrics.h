// What the server counts, as Prometheus reads it. The names are vLLM's under our prefix, so that dashboards made for
// vLLM work with doppler_ in place of vllm: (docs/server.md has the list).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/generation.h"

namespace doppler::serve {

struct RequestRow {
  uint64_t number = 0;
  std::string model = {}, client = {};
  size_t prompt = 0, tokens = 0;  // tokens of all its answers so far
  double seconds = 0;             // since it came
};

struct EngineGauges {
  size_t running = 0, waiting = 0;  // sequences, requests
  size_t pages = 0, held_pages = 0, page_tokens = 0;
  size_t cache_tokens = 0;                // that all pages hold
  uint64_t preemptions = 0;               // since the start, of models that were unloaded, too
  uint64_t generated = 0;                 // tokens since the start
  uint64_t gpu_buffer_bytes = 0;          // of all models
  std::vector<RequestRow> requests = {};  // that are not finished, if they are wanted
};

class Histogram {
 public:
  void add(double seconds);
  void print(std::string& out, const std::string& name, const std::string& help) const;

 private:
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                         0.5,   1.0,    2.5,   5.0,  10.0,  25.0, 50.0, 100.0};  // seconds
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

// From any thread.
class Metrics {
 public:
  void publish(const EngineGauges& gauges);
  void gap(double seconds);  // between two tokens of one answer
  // A sample's end; `first` and `last` of its request.
  void finished(size_t prompt, const Generation& answer, bool first, bool last, double seconds);
  void answered(int status);
  std::string print(const std::vector<std::string>& models, uint64_t dropped_lines) const;
  EngineGauges gauges() const;

 private:
  mutable std::mutex mutex_;
  EngineGauges gauges_;
  uint64_t prompt_tokens_ = 0, generated_tokens_ = 0, found_tokens_ = 0;
  std::map<std::string, uint64_t> reasons_;
  std::map<int, uint64_t> statuses_;
  Histogram first_token_, gap_, whole_, queue_, prefill_, decode_;
};

}  // namespace doppler::serve
