#include "serve/batch.h"

#include <fmt/format.h>

#include "base/error.h"
#include "serve/batch_runner.h"

namespace doppler::serve {
namespace {

class Batch {
 public:
  explicit Batch(const BatchOptions& options)
      : options_(options),
        requests_(options.input, options.shard, options.shards),
        answers_(options.output, requests_, options.ordered),
        runner_(options.models, options.engine) {
    counts_.all = requests_.size();
    counts_.kept = answers_.kept();
  }

  BatchCounts run() {
    if (counts_.kept < counts_.all) {
      runner_.load([this] { look(); });
      answer_all();
    }
    answers_.finish();
    return counts_;
  }

 private:
  void look() {
    if (options_.stopping && options_.stopping()) {
      fail({.code = ErrorCode::kFile,
            .what = "the batch was interrupted",
            .where = options_.output.string(),
            .got = fmt::format("{} of {} answers", counts_.kept + counts_.answered, counts_.all),
            .todo = "The same command goes on where it stopped"});
    }
    if (options_.on_progress) options_.on_progress(counts_);
  }

  void answer_all() {
    for (size_t next = 0; next < requests_.size() || !runner_.idle();) {
      while (next < requests_.size() && runner_.room()) {
        if (!answers_.answered(next)) {
          runner_.ask(requests_.read(next), [this, next](BatchAnswer answer) { write(next, std::move(answer)); });
        }
        ++next;
      }
      runner_.run(std::chrono::milliseconds(100));
      look();
    }
  }

  void write(size_t at, BatchAnswer answer) {
    counts_.prompt_tokens += answer.prompt_tokens;
    counts_.tokens += answer.tokens;
    answers_.add(at, std::move(answer.line));
    ++counts_.answered;
    if (answer.faulty) ++counts_.faulty;
  }

  const BatchOptions& options_;
  const BatchRequests requests_;
  BatchAnswers answers_;
  BatchCounts counts_;
  BatchRunner runner_;
};

}  // namespace

BatchCounts run_batch(const BatchOptions& options) { return Batch(options).run(); }

}  // namespace doppler::serve
