// Load on a server that speaks OpenAI's API, ours or another, and the times that its clients see. Times are named and
// defined as in vLLM's benchmark, except that a chunk without text (the role that comes first) is no token:
//   TTFT  from sending a request to its first chunk with text
//   ITL   each gap between two chunks with text
//   E2E   from sending to the last chunk with a choice
//   TPOT  (E2E - TTFT) / (tokens of the answer - 1), for answers of at least two
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "bench/inference.h"
#include "bench/load_client.h"

namespace doppler {

struct LengthRange {  // uniform; both ends may be drawn
  int least = 0, most = 0;
};

struct ServeWorkload {
  std::string endpoint = "chat";  // or completions
  std::string model;              // empty: the first that the server names
  int clients = 8;
  double rate = 0;     // requests a second, with Poisson arrivals; 0: `clients` in a closed loop
  int requests = 0;    // that are sent at most; 0: no bound
  double seconds = 0;  // after which no more are sent; 0: no bound. One of the two is set
  LengthRange prompt_tokens = {128, 128}, tokens = {128, 128};
  double shared_prefix = 0;                 // of each prompt, the part in which they are all the same: 0 … 1
  double slo_ttft_ms = 0, slo_tpot_ms = 0;  // bounds that a good request keeps; 0: none
  uint64_t seed = 0;
  Json body = Json::object();  // fields that every request has besides, or in place of ours
};

// The events of one streamed answer. Times are seconds since the request was sent.
class StreamReader {
 public:
  void take(std::string_view bytes, double at);

  double first_s = 0, last_s = 0;  // first chunk with text; last chunk with a choice
  std::vector<double> gaps_s;
  int chunks = 0;                                           // with text
  int prompt_tokens = -1, tokens = -1, cached_tokens = -1;  // as the server counted; -1: it did not say
  bool finished = false;                                    // by a finish_reason or [DONE]
  std::string failure, detail;                              // an error in the stream: its kind, more about it

 private:
  void take_event(std::string_view data, double at);
  void take_choice(const Json& choice, double at);
  std::string line_;  // its beginning, until the rest comes
  double last_text_s_ = 0;
};

struct RequestSample {
  double sent_s = 0, late_s = 0;  // since the load began; behind the moment when it was due
  double ttft_s = 0, e2e_s = 0;
  std::vector<double> gaps_s = {};
  int prompt_tokens = 0, tokens = 0, cached_tokens = 0;
  std::string failure = {}, detail = {};  // kind, more about it; empty: a whole answer
  double tpot_s() const { return tokens > 1 ? (e2e_s - ttft_s) / (tokens - 1) : 0; }
};

struct ServeResult {
  std::string url;
  ServeWorkload workload;  // with the model that was asked
  bool counted = true;     // by the server's usage; else chunks and words were taken for tokens
  double duration_s = 0;   // to the end of the last answer
  std::vector<RequestSample> samples;

  Json to_json() const;  // bench/serve.schema.json
  std::string to_table() const;
  std::string to_svg() const;  // times by percentile; chunks a second and requests in flight over time
  bool any() const;            // whether a request was answered
};

// The i-th prompt of so many words.
std::string load_prompt(const ServeWorkload& workload, uint64_t request, int words);

// Asks twice to learn the model's name and how many tokens a word has; then the load. Fails where the server does not
// answer that.
ServeResult bench_serve(const LoadTarget& target, const ServeWorkload& workload, const OnStatus& progress);

}  // namespace doppler
