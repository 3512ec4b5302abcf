// The thread that runs models: who gets a place, models that come and go, and what happens when one cannot go on.
#include "serve/engine_thread.h"

#include <gtest/gtest.h>

#include <future>

#include "model/cost.h"
#include "serve/api.h"
#include "support/planted.h"
#include "support/scratch.h"

namespace doppler::serve {
namespace {

using namespace std::chrono_literals;
using Served = std::shared_ptr<const ServedModel>;

class EngineThreadTest : public ::testing::Test {
 protected:
  void start(EngineOptions options, uint64_t cache_memory = 0) {
    options.backend = "cpu";
    options.executor = {.context = 128, .threads = 1, .cache_memory = cache_memory, .sequences = 4};
    options.on_event = [this](const EngineEvent& event) {
      std::unique_lock lock(mutex_);
      events_.push_back(event.what);
      changed_.notify_all();
      changed_.wait(lock, [&] { return event.what != "loaded" || !hold_; });
    };
    engine_ = std::make_unique<EngineThread>(std::vector<ModelSpec>{{"tiny", DOPPLER_SOURCE_DIR "/models/tiny"}},
                                             options, metrics_);
  }
  // Models that are being loaded stay so while it is true.
  void hold(bool hold) {
    const std::lock_guard lock(mutex_);
    hold_ = hold;
    changed_.notify_all();
  }
  size_t count(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count(events_.begin(), events_.end(), what));
  }
  Served model() {
    auto loaded = std::make_shared<std::promise<Served>>();
    engine_->with_model("tiny", [loaded](Served served, const std::string&) { loaded->set_value(std::move(served)); });
    return loaded->get_future().get();
  }
  struct Answer {
    std::promise<std::string> end;  // empty, or the failure
  };
  // `tokens` of an answer that goes on until then. The number is 0 where it was refused.
  std::pair<uint64_t, std::future<std::string>> ask(const Served& served, const std::string& client, int tokens,
                                                    bool throws = false) {
    GenerateRequest request;
    request.prompt = {2, 3, 4};
    request.options.max_tokens = tokens;
    request.client = client;
    auto answer = std::make_shared<Answer>();
    auto future = answer->end.get_future();
    const uint64_t number = engine_->submit(served, std::move(request), [answer, throws](Piece piece) {
      if (!piece.failure.empty() || piece.finished) return answer->end.set_value(piece.failure);
      if (throws) throw std::runtime_error("the device is lost");
    });
    return {number, std::move(future)};
  }
  ~EngineThreadTest() override { hold(false); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  bool hold_ = false;
  Metrics metrics_;
  std::unique_ptr<EngineThread> engine_;
};

TEST_F(EngineThreadTest, AFullQueueStillTakesAClientThatHasNothingThere) {
  start({.sequences = 1, .queue = 8});
  const Served served = model();
  std::vector<std::pair<uint64_t, std::future<std::string>>> asked;
  for (int i = 0; i < 8; ++i) {
    asked.push_back(ask(served, "greedy", 100));
    EXPECT_NE(asked.back().first, 0u);
  }
  EXPECT_EQ(ask(served, "greedy", 1).first, 0u);
  auto other = ask(served, "other", 1);
  EXPECT_NE(other.first, 0u);
  EXPECT_EQ(ask(served, "third", 1).first, 0u);  // an eighth of eight is one
  EXPECT_EQ(other.second.get(), "");
  EXPECT_EQ(asked.back().second.wait_for(0s), std::future_status::timeout);  // the other passed those that wait
  for (auto& [number, end] : asked) engine_->cancel(number);
  for (auto& [number, end] : asked) EXPECT_EQ(end.get(), "");
  EXPECT_NE(ask(served, "greedy", 1).first, 0u);  // their places are free again
}

TEST_F(EngineThreadTest, WhoWaitsForAModelTakesAPlace) {
  start({.queue = 2});
  hold(true);
  std::atomic<int> called = 0;
  const auto wait = [&](const std::string& client) {
    engine_->with_model(
        "tiny", [&](const Served&, const std::string&) { ++called; }, client);
  };
  wait("a");
  wait("a");
  try {
    wait("a");
    FAIL() << "the queue has two places";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 429);
  }
  wait("b");
  EXPECT_THROW(wait("c"), ApiError);
  hold(false);
  for (int i = 0; i < 2000 && called < 3; ++i) std::this_thread::sleep_for(5ms);
  const Served served = model();
  EXPECT_NE(ask(served, "a", 1).first, 0u);  // their places are free again
  engine_->stop();
  EXPECT_EQ(called, 3);
}

// A model whose last norm holds NaN: every answer fails with its tensor's name, and the model stays for the next one.
TEST_F(EngineThreadTest, AFaultyModelFailsTheAnswerAndNothingElse) {
  const testing::Scratch scratch;
  std::filesystem::copy(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "tiny");
  testing::plant_nan(scratch / "tiny", "model.norm.weight");
  engine_ = std::make_unique<EngineThread>(std::vector<ModelSpec>{{"tiny", scratch / "tiny"}},
                                           EngineOptions{.backend = "cpu",
                                                         .executor = {.context = 128, .threads = 1, .sequences = 4},
                                                         .on_event =
                                                             [this](const EngineEvent& event) {
                                                               const std::lock_guard lock(mutex_);
                                                               events_.push_back(event.what);
                                                             }},
                                           metrics_);
  const Served served = model();
  for (int i = 0; i < 2; ++i) {
    const std::string failure = ask(served, "somebody", 4).second.get();
    EXPECT_NE(failure.find("in tensor model.norm.weight"), std::string::npos) << failure;
  }
  EXPECT_EQ(count("faulty"), 2u);
  EXPECT_EQ(count("failed"), 0u);
  EXPECT_EQ(count("loaded"), 1u) << "it was not loaded again";
}

TEST_F(EngineThreadTest, AModelIsNotUnloadedUnderARequestThatIsBeingMade) {
  start({.idle_unload_s = 1e-3});
  Served served = model();
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(5ms);
    engine_->cancel(1000);  // of nobody: the thread looks round
  }
  EXPECT_EQ(count("unloaded"), 0u);
  EXPECT_EQ(ask(served, "a", 1).second.get(), "");
  served = nullptr;
  for (int i = 0; i < 2000 && count("unloaded") == 0; ++i) {
    std::this_thread::sleep_for(5ms);
    engine_->cancel(1000);
  }
  EXPECT_EQ(count("unloaded"), 1u);
  EXPECT_EQ(ask(model(), "a", 1).second.get(), "");
  EXPECT_EQ(count("loaded"), 2u);
}

TEST_F(EngineThreadTest, CountersDoNotFallWhenAModelIsUnloaded) {
  const LoadedModel tiny = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  start({.idle_unload_s = 1e-3}, 2 * kv_cache_bytes(tiny.config, 128));
  {
    const Served served = model();
    std::vector<std::pair<uint64_t, std::future<std::string>>> asked;
    for (int i = 0; i < 6; ++i) asked.push_back(ask(served, "a", 110));
    for (auto& [number, end] : asked) EXPECT_EQ(end.get(), "");
  }
  for (int i = 0; i < 2000 && count("unloaded") == 0; ++i) {
    std::this_thread::sleep_for(5ms);
    engine_->cancel(1000);
  }
  engine_->stop();  // what it published last
  EXPECT_EQ(metrics_.gauges().pages, 0u);
  EXPECT_GT(metrics_.gauges().preemptions, 0u);
}

TEST_F(EngineThreadTest, WhatCannotGoOnIsLoadedAnew) {
  start({.sequences = 4});
  Served served = model();
  auto beside = ask(served, "b", 100);
  auto broken = ask(served, "a", 100, true);
  EXPECT_NE(broken.second.get().find("the device is lost"), std::string::npos);
  EXPECT_NE(beside.second.get().find("the device is lost"), std::string::npos);
  for (int i = 0; i < 2000 && count("failed") == 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(count("failed"), 1u);
  served = model();
  EXPECT_EQ(count("loaded"), 2u);
  EXPECT_EQ(ask(served, "a", 3).second.get(), "");
}

TEST_F(EngineThreadTest, AskingAgainFromTheCallOfALoadThatFailed) {
  engine_ =
      std::make_unique<EngineThread>(std::vector<ModelSpec>{{"none", "/nowhere/at/all"}}, EngineOptions{}, metrics_);
  std::promise<std::string> second;
  engine_->with_model("none", [&](const Served&, const std::string&) {
    engine_->with_model("none", [&](const Served&, const std::string& failure) { second.set_value(failure); });
  });
  EXPECT_NE(second.get_future().get(), "");
}

}  // namespace
}  // namespace doppler::serve
