// How fast many sequences are decoded together: one pass over the weights for all of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/inference.h"

namespace doppler {

struct BatchWorkload {
  std::vector<int> sequences = {1, 8, 32, 64, 128};
  int prompt_tokens = 128, tokens = 128;  // of each sequence
  int runs = 3;
  int threads = 0;  // 0: all cores
  int device = -1;
  std::string backend = "auto";
};

struct BatchResult {
  struct Point {
    int sequences = 0;
    std::vector<double> prefill_tok_s = {}, decode_tok_s = {};  // of all sequences together, one per run
  };
  BatchWorkload workload;
  std::string model, quantization, backend;
  Json environment;
  uint64_t cache_bytes = 0;
  std::vector<Point> points;

  Json to_json() const;
  std::string to_table() const;
};

// Fails where the backend cannot hold as many sequences.
BatchResult bench_batch(const std::filesystem::path& model, const BatchWorkload& workload, const OnStatus& progress);

}  // namespace doppler
