// The one thread that runs models. Others hand it requests and take what comes out as plain structs; nothing is locked
// while it computes. A model is loaded when it is first asked for, beside the answers of the others.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/embedding.h"
#include "engine/generator.h"
#include "engine/loaded_model.h"
#include "grammar/token_trie.h"
#include "serve/metrics.h"

namespace doppler::serve {

struct NamedAdapter {
  std::string name;  // "MODEL:NAME" is what clients call the model with it
  AdapterSpec spec;
};

struct ModelSpec {
  std::string name;  // what clients call it
  std::filesystem::path path;
  std::vector<NamedAdapter> adapters = {};
};

// What a client's name means.
struct NamedModel {
  const ModelSpec* model = nullptr;  // null: nothing
  int adapter = -1;                  // of the model's; -1: none
};

struct EngineEvent {
  std::string what;  // "loaded", "unloaded", "failed"; "faulty": one answer could not go on
  std::string model, detail;
};

// One client may take all of `sequences` and `queue`, and does where it is alone. An eighth more of each, one at least,
// is kept for the others: a sequence starts for the client that has the fewest, and a request beyond the queue is
// accepted from a client that has none.
struct EngineOptions {
  std::string backend = "auto";
  ExecutorOptions executor = {};                          // context 0: the model's own, at most 4096 tokens
  int sequences = 32;                                     // of one client that run at once
  int queue = 256;                                        // requests that are not finished or wait for a model
  bool verify = true;                                     // an artefact's bytes, once
  std::string watchdog = "off";                           // off, warn or stop (engine/watchdog.h)
  bool list_requests = false;                             // in what is published
  double idle_unload_s = 0;                               // a model that nobody asked so long is unloaded; 0: never
  std::function<void(const EngineEvent&)> on_event = {};  // from any thread; must not throw
};

// A vocabulary as grammars need it, made when the first answer is to be held to one.
class LazyTrie {
 public:
  const std::shared_ptr<const TokenTrie>& of(const Tokenizer& tokenizer) {
    std::call_once(once_, [&] { trie_ = TokenTrie::make(tokenizer); });
    return trie_;
  }

 private:
  std::once_flag once_;
  std::shared_ptr<const TokenTrie> trie_;
};

// What I/O threads need of a loaded model; stays valid for who holds it, also when the model is unloaded.
struct ServedModel {
  std::string name;
  LoadedModel model;
  int context = 0;
  size_t adapters = 0;  // that requests may name
  std::shared_ptr<LazyTrie> trie = std::make_shared<LazyTrie>();
  std::shared_ptr<const EmbeddingHead> embedding = {};  // of `model`
};

// What became certain of one sample's answer.
struct Piece {
  int sample = 0;
  std::string text = {};
  std::vector<int32_t> tokens = {};          // that were chosen since the last piece
  std::vector<TokenLogprobs> logprobs = {};  // of each, if they were asked for
  bool finished = false;                     // the last of this sample; what follows is set then
  StopReason reason = StopReason::kEnd;
  Timing timing = {};
  size_t total_tokens = 0;
  std::string failure = {};  // not empty: the engine could not go on; the last of the whole request
};
using OnEnginePiece = std::function<void(Piece piece)>;  // on the engine thread: may only hand it over

// Something else than an answer, done on the engine thread a little at a time, between two steps of the answers: called
// until it returns true. What it holds of the cache when it returns must leave room for a sequence of full length.
using EngineWork = std::function<bool(Executor& executor)>;

class EngineThread {
 public:
  EngineThread(std::vector<ModelSpec> models, EngineOptions options, Metrics& metrics);
  ~EngineThread() { stop(); }
  // What runs fails; afterwards nothing calls anybody back.
  void stop();

  const std::vector<ModelSpec>& models() const { return specs_; }
  const ModelSpec* find(const std::string& name) const;  // null: there is none
  NamedModel find_named(const std::string& name) const;  // an adapter's model, too
  std::vector<std::string> names() const;                // of all that find_named() finds
  // Calls back with the model, at once where it is loaded, else from another thread; or with null and why not. Throws
  // ApiError (429) where it is not loaded and too many are waiting.
  using OnModel = std::function<void(std::shared_ptr<const ServedModel>, const std::string& failure)>;
  void with_model(const std::string& name, OnModel on_model, const std::string& client = "");

  // Its number; 0: too many are waiting. The request must be one that can run (see Generator::submit).
  // With `work` it is that which runs, for request.client, and its end is a finished piece or a failure.
  uint64_t submit(std::shared_ptr<const ServedModel> model, GenerateRequest request, OnEnginePiece on_piece,
                  EngineWork work = {});
  // The answer ends within a step, and no more pieces come.
  void cancel(uint64_t number);
  int sequences() const { return options_.sequences; }

 private:
  struct Job {
    std::shared_ptr<const ServedModel> model;
    GenerateRequest request;
    OnEnginePiece on_piece;
    EngineWork work;
  };
  struct Running {  // a loaded model, of which the engine thread alone touches executor and generator
    std::shared_ptr<const ServedModel> served;
    std::unique_ptr<Executor> executor;
    std::unique_ptr<Generator> generator;
    std::shared_ptr<AnswerWatch> watch;  // null: nobody looks
    std::map<uint64_t, uint64_t> jobs;   // by number: the generator's own
    std::deque<std::pair<uint64_t, EngineWork>> work;
    double idle_since = 0;     // seconds
    std::string failure = {};  // not empty: it cannot go on
    size_t cache_tokens = 0;   // that its pages hold
  };
  struct Waiting {
    std::string client;
    OnModel on_model;
  };
  struct Slot {  // of one model; under mutex_
    std::shared_ptr<const ServedModel> served;
    std::vector<Waiting> waiting;
    bool loading = false;
  };
  struct Sink {
    OnEnginePiece on_piece;
    std::string client, model;
    size_t prompt = 0, tokens = 0;
    double begun = 0;  // seconds
  };
  static int reserve(int of) { return std::max(1, of / 8); }
  // Under mutex_.
  bool take_place(const std::string& client);
  void leave_place(const std::string& client);
  // The request is over: nobody is told anything more.
  OnEnginePiece take_sink(uint64_t number);
  void tell(const std::string& what, const std::string& model, const std::string& detail) const;
  void load(const ModelSpec& spec);
  void loop();
  void start(Running& running, uint64_t number, Job job);
  void step(Running& running);
  void do_work(Running& running);
  void fail_all(Running& running, const std::string& why);
  bool unload(Running& running, const std::string& why, bool even_if_used);
  void publish();

  const std::vector<ModelSpec> specs_;
  const EngineOptions options_;
  Metrics& metrics_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Slot> slots_;
  std::deque<std::pair<uint64_t, Job>> inbox_;
  std::vector<uint64_t> cancelled_;
  std::vector<Running> loaded_;  // that the engine thread has yet to take over
  uint64_t numbers_ = 0;
  bool stopping_ = false;
  int loaders_ = 0;                    // threads that load
  int taken_ = 0;                      // of all places
  std::map<std::string, int> places_;  // taken, by client
  // The engine thread's own.
  std::vector<std::unique_ptr<Running>> running_;
  std::map<uint64_t, Sink> sinks_;
  uint64_t put_back_ = 0;   // times, of models that were unloaded
  uint64_t generated_ = 0;  // tokens
  std::thread thread_;
};

}  // namespace doppler::serve
