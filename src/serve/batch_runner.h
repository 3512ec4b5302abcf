// Requests in OpenAI's batch form, answered by this machine's models as the server would: what `doppler batch` does
// with a file, and a worker with what a queue gives it.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "serve/batch_file.h"
#include "serve/engine_thread.h"

namespace doppler::serve {

struct Usage;

struct BatchAnswer {
  std::string line;     // {"id", "custom_id", "response", "error"}, without its end
  bool faulty = false;  // it is an error
  bool failed = false;  // by no fault of its own (status 500 and above), twice
  size_t prompt_tokens = 0, tokens = 0;
};

// The answer to a line that is no request.
BatchAnswer fault_answer(const BatchRequests::Request& request);

class BatchRunner {
 public:
  using OnAnswer = std::function<void(BatchAnswer answer)>;

  BatchRunner(const std::vector<ModelSpec>& models, const EngineOptions& options);
  ~BatchRunner();
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // The first model: if that one cannot be loaded, nothing is answered with errors. `waiting` is called a few times a
  // second.
  void load(const std::function<void()>& waiting);

  // Whether one more may be asked: the engine's queue is kept full, so that who ends is followed at once.
  bool room() const { return running_ < most_ && !alone_ && again_.empty(); }
  bool idle() const { return running_ == 0 && again_.empty(); }
  size_t held() const { return running_ + again_.size(); }
  // Calls back from ask() or from run(). Who failed by no fault of its own is asked once more, alone: what takes the
  // engine down takes nobody with it the second time.
  void ask(BatchRequests::Request request, OnAnswer on_answer);
  // When nothing else runs; `before` is called then, and where it returns false nothing is asked.
  void ask_alone(BatchRequests::Request request, OnAnswer on_answer, std::function<bool()> before);
  // What there is to do, after waiting so long for something.
  void run(std::chrono::milliseconds patience);
  // Called by run(); from any thread.
  void post(std::function<void()> work);

 private:
  class Strand;
  class Reply;
  struct Job {
    BatchRequests::Request request;
    OnAnswer on_answer;
    std::function<bool()> before;
    bool again = false;
  };
  void start(std::shared_ptr<Job> job);
  void take(const std::shared_ptr<Job>& job, const Reply& reply, const Usage& usage);

  const std::vector<ModelSpec>& models_;
  const size_t most_;
  Metrics metrics_;
  const std::shared_ptr<Strand> strand_;
  size_t running_ = 0;                      // that are asked and not answered
  bool alone_ = false;                      // the one that runs is to run alone
  std::deque<std::shared_ptr<Job>> again_;  // that are to be asked alone
  EngineThread engine_;
};

}  // namespace doppler::serve
