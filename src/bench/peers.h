// This engine beside others on the same machine: processes of their own, runs taken in turns.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "bench/inference.h"

namespace doppler {

struct PeerWorkload {
  int prompt_tokens = 512, tokens = 128, runs = 3, threads = 0;
  std::vector<int32_t> prompt;  // ids; empty: prompt_tokens random ones below `vocab`
  int vocab = 0;
};

// An engine: a process that speaks the protocol of tools/peers/peer.mjs.
struct PeerEngine {
  std::string name, types;  // "llama.cpp", "Q4_0"
  std::vector<std::string> command;
  std::filesystem::path folder, model;
};

struct PeerFigures {
  PeerEngine engine;
  std::vector<double> prefill_tok_s, decode_tok_s, first_token_ms;  // one per run
  uint64_t peak_bytes = 0, model_bytes = 0;
  double runtime_ms = 0;     // of the time to the first token: what the other's runtime took to start
  std::vector<int32_t> ids;  // what it chose greedily
};

// The first engine is the one the others are compared with. Every run visits each engine once.
std::vector<PeerFigures> compare_peers(const std::vector<PeerEngine>& engines, const PeerWorkload& workload,
                                       const std::function<void(std::string_view)>& progress);

Json to_json(const std::vector<PeerFigures>& figures, const PeerWorkload& workload);
std::string to_table(const std::vector<PeerFigures>& figures, const PeerWorkload& workload);

// The other side of the protocol, for this engine: answers lines on standard input until they end.
void serve_peer();

}  // namespace doppler
