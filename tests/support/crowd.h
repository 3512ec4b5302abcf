// Requests that arrive, are cut, forked, guessed ahead, put back and cancelled at random, in one batch with others.
// Each must get bit for bit the logits that it gets alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "cpu/test_random.h"
#include "model/executor.h"

namespace doppler::testing {

struct Request {
  std::vector<int32_t> text;  // prompt, then what follows it
  size_t prompt = 0;
  AdapterUses adapters = {};
  std::vector<std::vector<float>> expected;  // logits after the prompt, and after each token behind it
};

// A request on its way, beside others.
struct Running {
  const Request* request;
  std::optional<Sequence> sequence;
};

class Crowd {
 public:
  // `alone`: what says what a request gives alone, if it is not the executor itself.
  Crowd(Executor& executor, uint64_t seed, Executor* alone = nullptr)
      : executor_(executor), alone_(alone ? *alone : executor), cache_(executor.cache()), random_(seed) {}

  // Random requests, some of which begin as others do; what they give alone. tokens(count, seed) makes a text. Each has
  // one of `adapters`.
  void prepare(const std::function<std::vector<int32_t>(int, uint64_t)>& tokens, size_t count, int longest_prompt = 90,
               int longest_answer = 20, const std::vector<AdapterUses>& adapters = {{}}) {
    for (size_t i = 0; i < count; ++i) {
      Request request;
      request.prompt =
          static_cast<size_t>(1 + (random_.below(3) == 0 ? random_.below(8) : random_.below(longest_prompt)));
      request.text = tokens(static_cast<int>(request.prompt) + 1 + random_.below(longest_answer), random_.next());
      if (i > 0 && random_.below(2) == 0) {
        const Request& other = requests_[static_cast<size_t>(random_.below(static_cast<int>(i)))];
        const size_t shared =
            std::min({request.prompt, other.text.size(), static_cast<size_t>(random_.below(longest_prompt))});
        std::copy_n(other.text.begin(), shared, request.text.begin());
      }
      request.adapters = adapters[i % adapters.size()];
      Sequence sequence = alone_.cache().start(1000 + i, request.adapters);  // a salt of its own: nothing is shared
      const std::span<const int32_t> text = request.text;
      const auto run = [&](std::span<const int32_t> piece, Phase phase) {
        const BatchItem item{&sequence, piece, phase, Logits::kLast};
        const std::span<const float> logits = alone_.run(std::span(&item, 1));
        request.expected.emplace_back(logits.begin(), logits.end());
      };
      run(text.first(request.prompt), alone_.phase_of_prompt(request.prompt));
      for (size_t t = request.prompt; t < text.size(); ++t) run(text.subspan(t, 1), Phase::kDecode);
      requests_.push_back(std::move(request));
    }
    alone_.cache().drop_prefixes();
  }

  void run_all() {
    size_t arrived = 0;
    std::vector<Running> running;
    while (arrived < requests_.size() || !running.empty()) {
      while (arrived < requests_.size() && (running.empty() || random_.below(3) == 0)) {
        running.push_back({&requests_[arrived++], std::nullopt});
      }
      disturb(running);
      step(running);
      std::erase_if(running, [](const Running& r) {
        return r.sequence && static_cast<size_t>(r.sequence->length()) == r.request->text.size();
      });
    }
    EXPECT_EQ(cache_.held_pages(), 0u);
  }

  int found = 0;  // tokens that were in the cache already

 private:
  void start(Running& r) {
    r.sequence.emplace(cache_.start(0, r.request->adapters));
    if (random_.below(4) == 0) return;
    found += cache_.take_prefix(*r.sequence, std::span(r.request->text).first(r.request->prompt),
                                executor_.phase_of_prompt(r.request->prompt));
  }

  // Put back and recomputed, forked, or cancelled.
  void disturb(std::vector<Running>& running) {
    for (Running& r : running) {
      if (!r.sequence) continue;
      if (random_.below(20) == 0) r.sequence.reset();
      if (r.sequence && random_.below(12) == 0) {
        Sequence copy = cache_.fork(*r.sequence);
        if (random_.below(2) == 0) r.sequence = std::move(copy);
      }
    }
    for (size_t i = 0; i < running.size(); ++i) {
      if (!running[i].sequence || random_.below(15) > 0) continue;
      running.push_back({running[i].request, cache_.fork(*running[i].sequence)});  // both go on from here
      break;
    }
    if (running.size() > 1 && random_.below(40) == 0) running.erase(running.begin());
  }

  struct Asked {
    Running* running;
    size_t first, count;  // tokens of the text
    size_t wrong;         // tokens behind them that are guesses, and not those of the text
    Logits want;
    std::vector<int32_t> tokens;
  };

  void step(std::vector<Running>& running) {
    std::vector<Asked> asked;
    for (Running& r : running) {
      if (random_.below(4) == 0) continue;
      if (!r.sequence) start(r);
      const size_t length = static_cast<size_t>(r.sequence->length()), end = r.request->text.size();
      Asked a{&r, length, 0, 0, Logits::kNone, {}};
      if (length < r.request->prompt) {
        a.count = 1 + static_cast<size_t>(random_.below(static_cast<int>(r.request->prompt - length)));
        if (length + a.count == r.request->prompt) a.want = Logits::kLast;
      } else {
        const bool several = random_.below(4) == 0;
        a.count = several ? 1 + static_cast<size_t>(random_.below(static_cast<int>(end - length))) : 1;
        a.wrong = several && cache_.can_rewind() ? static_cast<size_t>(random_.below(4)) : 0;
        a.want = several ? Logits::kAll : Logits::kLast;
      }
      const std::span<const int32_t> text = std::span(r.request->text).subspan(length, a.count);
      a.tokens.assign(text.begin(), text.end());
      for (size_t i = 0; i < a.wrong; ++i) a.tokens.push_back(static_cast<int32_t>(i));
      asked.push_back(std::move(a));
    }
    for (size_t i = asked.size(); i > 1; --i) {
      std::swap(asked[i - 1], asked[static_cast<size_t>(random_.below(static_cast<int>(i)))]);
    }
    std::vector<BatchItem> batch;
    for (const Asked& a : asked) {
      const bool prompt = a.first < a.running->request->prompt;
      batch.push_back({&*a.running->sequence, a.tokens,
                       prompt ? executor_.phase_of_prompt(a.running->request->prompt) : Phase::kDecode, a.want});
    }
    if (batch.empty()) return;
    check(asked, executor_.run(batch));
  }

  void check(std::vector<Asked>& asked, std::span<const float> logits) {
    const size_t vocab = requests_[0].expected[0].size();
    for (Asked& a : asked) {
      const Request& request = *a.running->request;
      const size_t rows = a.want == Logits::kAll ? a.tokens.size() : a.want == Logits::kLast ? 1 : 0;
      ASSERT_GE(logits.size(), rows * vocab);
      const size_t known = a.want == Logits::kAll ? a.count : rows;
      for (size_t row = 0; row < known; ++row) {
        const size_t position = a.first + a.count - known + row;  // of the token whose logits these are
        const std::vector<float>& expected = request.expected[position - (request.prompt - 1)];
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), logits.begin() + static_cast<long>(row * vocab)))
            << "a prompt of " << request.prompt << " tokens, at position " << position << ", in a batch of "
            << asked.size();
      }
      logits = logits.subspan(rows * vocab);
      // Guesses are taken back, and now and then some of what was right.
      size_t keep = a.first + a.count;
      if (!cache_.can_rewind()) continue;
      if (a.want == Logits::kAll && random_.below(3) == 0)
        keep -= static_cast<size_t>(random_.below(static_cast<int>(a.count)));
      cache_.truncate(*a.running->sequence, static_cast<int>(keep));
    }
    EXPECT_TRUE(logits.empty());
  }

  Executor& executor_;
  Executor& alone_;
  KvCache& cache_;
  Random random_;
  std::vector<Request> requests_;
};

}  // namespace doppler::testing

// Tests name what is here without its namespace.
namespace doppler {
using namespace testing;
}  // namespace doppler
