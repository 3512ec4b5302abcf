#include "engine/scheduler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "engine/generator.h"

namespace doppler {
namespace {

constexpr int kVocab = 26, kPage = 4, kWindow = 10, kMinPrefill = 5;
constexpr int32_t kEnd = 25;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ b * 0xd6e8feb86659fd93) * 0x9e3779b97f4a7c15;
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9;
  return x ^ x >> 29;
}

// Letters, one token each.
const Tokenizer& letters() {
  static const Tokenizer tokenizer = [] {
    std::string vocab;
    for (int i = 0; i < kVocab; ++i) vocab += fmt::format("{}\"{}\":{}", i ? "," : "", static_cast<char>('a' + i), i);
    return Tokenizer::from_json(
        R"({"model":{"type":"BPE","vocab":{)" + vocab + R"(},"merges":[]},"decoder":{"type":"Fuse"}})", "letters");
  }();
  return tokenizer;
}

ModelConfig config() {
  ModelConfig config;
  config.vocab = kVocab;
  return config;
}

// The model: a position's state is a hash of the state before it, its token and its phase; its logits are a hash of all
// states that each layer sees. So they tell every mix-up of sequences, positions, phases and pages.
constexpr int kWindows[] = {0, kWindow, kWindow};  // by layer
uint64_t next_state(uint64_t before, int32_t token, Phase phase) {
  return mix(mix(before, static_cast<uint64_t>(token)), static_cast<uint64_t>(phase) + 1);
}
template <typename State>  // (layer, position)
void add_logits(int position, State&& state, std::vector<float>& logits) {
  uint64_t sum = 0;
  for (int layer = 0; layer < 3; ++layer) {
    const int first = kWindows[layer] > 0 ? std::max(0, position - kWindows[layer] + 1) : 0;
    for (int p = first; p <= position; ++p) sum = mix(sum + state(layer, p), static_cast<uint64_t>(p));
  }
  for (uint64_t i = 0; i < kVocab; ++i) logits.push_back(static_cast<float>(mix(sum, i) % 1024) / 128.f);
}

// Runs that model on pages as a backend does, and lets its clock go on by what the tokens cost.
class FakeExecutor : public Executor {
 public:
  // With several lanes a batch is computed when it starts, and nobody sees the logits before it is finished.
  explicit FakeExecutor(size_t pages, int lanes = 1)
      : lanes_(lanes),
        cache_({.groups = {{.window = kWindow, .layers = 2}, {.window = 0, .layers = 1}},
                .places = {{1, 0}, {0, 0}, {0, 1}},
                .page_tokens = kPage},
               {.pages = pages}),
        memory_(pages * kPage) {}

  std::string_view name() const override { return "fake"; }
  KvCache& cache() override { return cache_; }
  int min_prefill_tokens() const override { return kMinPrefill; }
  void set_tap(Tap) override {}
  size_t context_bytes() const override { return 0; }

  int lanes() const override { return lanes_; }
  void start(std::span<const BatchItem> batch) override {
    if (lanes_ == 1) return Executor::start(batch);
    run(batch);
    on_their_way_.push_back(std::exchange(logits_, {}));
    EXPECT_LE(on_their_way_.size(), static_cast<size_t>(lanes_));
  }
  std::span<const float> finish() override {
    if (lanes_ == 1) return Executor::finish();
    logits_ = std::move(on_their_way_.front());
    on_their_way_.pop_front();
    return logits_;
  }

  std::span<const float> run(std::span<const BatchItem> batch) override {
    for (const BatchItem& item : batch) {
      reserve_room(cache_, *item.sequence, static_cast<int>(item.tokens.size()));
    }
    for (const KvCache::Copy& copy : cache_.take_copies()) {
      std::copy_n(memory_.begin() + copy.from * kPage, kPage, memory_.begin() + copy.to * kPage);
    }
    logits_.clear();
    tokens.clear();
    std::set<const Sequence*> seen;
    double ms = step_ms + row_ms * static_cast<double>(batch.size());
    for (const BatchItem& item : batch) {
      EXPECT_TRUE(seen.insert(item.sequence).second);
      int position = item.sequence->length();
      const auto slot = [&](int layer, int p) -> uint64_t& {
        return memory_[cache_.page(*item.sequence, layer, p) * kPage + static_cast<size_t>(p % kPage)];
      };
      for (const int32_t token : item.tokens) {
        const uint64_t state = next_state(position > 0 ? slot(0, position - 1) : 0, token, item.phase);
        for (int layer = 0; layer < 3; ++layer) slot(layer, position) = state + static_cast<uint64_t>(layer);
        ++position;
        ms += item.tokens.size() > 1 ? token_ms : 0;
      }
      if (item.want == Logits::kLast) add_logits(position - 1, slot, logits_);
      tokens.push_back(static_cast<int>(item.tokens.size()));
      total += tokens.back();
    }
    for (const BatchItem& item : batch) cache_.append(*item.sequence, item.tokens, item.phase);
    now_ms += ms;
    return logits_;
  }

  double now_ms = 0, step_ms = 10, row_ms = 0, token_ms = 0.8;
  std::vector<int> tokens;  // of the last batch's items
  int total = 0;            // tokens run

 private:
  const int lanes_;
  std::deque<std::vector<float>> on_their_way_;
  KvCache cache_;
  std::vector<uint64_t> memory_;  // [page][position in it]
  std::vector<float> logits_;
};

// The same without pages, pieces or neighbours.
Generation alone(const GenerateRequest& request, int sample, int context) {
  GenerateOptions options = request.options;
  options.sampling.seed += static_cast<uint64_t>(sample);
  Answer answer(request.prompt, options, &letters(), context);
  std::vector<uint64_t> states;
  const Phase prompt_phase = request.prompt.size() < kMinPrefill ? Phase::kDecode : Phase::kPrefill;
  while (!answer.ended()) {
    while (states.size() < answer.text().size()) {
      const Phase phase = states.size() < request.prompt.size() ? prompt_phase : Phase::kDecode;
      states.push_back(next_state(states.empty() ? 0 : states.back(), answer.text()[states.size()], phase));
    }
    std::vector<float> logits;
    const auto state = [&](int layer, int p) { return states[static_cast<size_t>(p)] + static_cast<uint64_t>(layer); };
    add_logits(static_cast<int>(states.size()) - 1, state, logits);
    answer.push(answer.choose(logits));
  }
  answer.finish();
  return answer.take();
}

std::vector<int32_t> text(int length, int seed = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(mix(seed, i) % 20));
  return tokens;
}

// A generator over the fake, and everything it told.
struct World {
  World(size_t pages, const SchedulerOptions& options, int lanes = 1)
      : executor(pages, lanes),
        generator(executor, model, &letters(), {.scheduler = options, .now_ms = [this] { return executor.now_ms; }}) {}

  uint64_t submit(GenerateRequest request, int stop_after = -1) {
    const Scheduler::Submitted submitted = generator.submit(request, [this, stop_after](const GenerateEvent& event) {
      Told& to = told[event.id];
      EXPECT_FALSE(to.finished) << "an event after the end";
      to.text += event.piece;
      ++to.events;
      if (event.finished) {
        to.finished = true;
        to.result = *event.finished;
        to.at_ms = executor.now_ms;
      }
      return to.events != stop_after;
    });
    refusal = submitted.refusal;
    if (submitted.id != 0) requests[submitted.id] = std::move(request);
    return submitted.id;
  }

  // Every answer that ended by itself is the one computed alone, every other is a beginning of it.
  void expect_answers() {
    for (const auto& [id, request] : requests) {
      for (int k = 0; k < request.samples; ++k) {
        const Told& to = told[{id, k}];
        const Generation expected = alone(request, k, generator.scheduler().context());
        ASSERT_TRUE(to.finished) << id << '.' << k;
        ASSERT_EQ(to.text, to.result.text);
        if (to.result.stop_reason != StopReason::kInterrupted) {
          ASSERT_EQ(to.result.stop_reason, expected.stop_reason) << id << '.' << k;
          ASSERT_EQ(to.result.token_ids, expected.token_ids) << id << '.' << k;
          ASSERT_EQ(to.result.text, expected.text);
        } else {
          ASSERT_LE(to.result.token_ids.size(), expected.token_ids.size());
          ASSERT_TRUE(std::equal(to.result.token_ids.begin(), to.result.token_ids.end(), expected.token_ids.begin()));
        }
      }
    }
  }

  struct Told {
    std::string text;
    int events = 0;
    bool finished = false;
    Generation result;
    double at_ms = 0;
  };
  ModelConfig model = config();
  FakeExecutor executor;
  Generator generator;
  std::map<uint64_t, GenerateRequest> requests;
  std::map<SampleId, Told> told;
  Refusal refusal = Refusal::kNone;
};

struct Seen {
  int put_back = 0, found = 0, forked = 0, cancelled = 0, reasons[5] = {};
};

void play_random_case(uint64_t seed, Seen& seen, int lanes = 1) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const auto chance = [&](int percent) { return pick(1, 100) <= percent; };
  World world(
      static_cast<size_t>(chance(70) ? pick(25, 70) : 1000),
      {.context = pick(20, 80), .sequences = pick(3, 8), .sequences_per_client = pick(1, 4), .piece = pick(1, 24)},
      lanes);
  world.executor.token_ms = chance(50) ? 0.8 : 20;
  const Scheduler& scheduler = world.generator.scheduler();
  std::vector<uint64_t> ids;
  const bool cancels = chance(50), stops = chance(50);
  int left = pick(1, 14);
  for (int step = 0; left > 0 || scheduler.running() + scheduler.waiting() + scheduler.put_back() > 0; ++step) {
    ASSERT_LT(step, 5000) << "somebody starves";
    while (left > 0 && chance(30)) {
      --left;
      GenerateRequest request{.prompt = text(pick(1, std::min(60, scheduler.context())), pick(0, 1))};
      if (chance(30)) request.prompt.back() = pick(0, 19);
      request.options = {
          .max_tokens = pick(1, 40),
          .sampling = {.temperature = chance(50) ? 0.f : 1.f, .seed = static_cast<uint64_t>(pick(0, 99))},
          .stop_texts = stops ? std::vector<std::string>{"ab", "fg", "qzr"} : std::vector<std::string>{},
          .end_ids = stops ? std::vector<int32_t>{kEnd} : std::vector<int32_t>{}};
      if (chance(20)) request.options.sampling.repeat_penalty = 1.3f;
      request.samples = chance(30) ? pick(2, 3) : 1;
      request.client = std::string(1, static_cast<char>('A' + pick(0, 2)));
      request.salt = static_cast<uint64_t>(chance(20));
      seen.forked += request.samples > 1;
      ids.push_back(world.submit(request, cancels && chance(10) ? pick(1, 10) : -1));
      ASSERT_NE(ids.back(), 0u);
    }
    if (cancels && !ids.empty() && chance(5)) {
      const uint64_t id = ids[static_cast<size_t>(pick(0, static_cast<int>(ids.size()) - 1))];
      world.generator.cancel(id);
      for (int k = 0; k < world.requests[id].samples; ++k) ASSERT_TRUE((world.told[{id, k}].finished));
      ++seen.cancelled;
    }
    const size_t put_back = scheduler.put_back();
    const bool busy = scheduler.running() + scheduler.waiting() + put_back > 0;
    const bool stepped = world.generator.step();
    ASSERT_TRUE(stepped || !busy);
    ASSERT_TRUE(busy || !stepped || lanes > 1) << "what was cancelled is still on its way";
    seen.put_back += scheduler.put_back() > put_back;
    ASSERT_LE(scheduler.running(), 8u);
  }
  world.expect_answers();
  ASSERT_EQ(world.executor.cache().held_pages(), 0u);
  for (const auto& [id, to] : world.told) {
    ++seen.reasons[static_cast<size_t>(to.result.stop_reason)];
    seen.found += to.result.timing.found > 0;
  }
}

TEST(Scheduler, EveryAnswerIsTheOneComputedAlone) {
  Seen seen;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    play_random_case(seed, seen);
    if (HasFatalFailure()) return;
  }
  // Or the cases were too easy.
  EXPECT_GT(seen.put_back, 500);
  EXPECT_GT(seen.found, 500);
  EXPECT_GT(seen.forked, 500);
  EXPECT_GT(seen.cancelled, 500);
  for (const int reason : seen.reasons) EXPECT_GT(reason, 200);
}

TEST(Scheduler, WithSeveralBatchesOnTheirWayToo) {
  Seen seen;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    play_random_case(seed, seen, 2 + static_cast<int>(seed % 3));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen.put_back, 100);
  EXPECT_GT(seen.found, 100);
  EXPECT_GT(seen.forked, 100);
  EXPECT_GT(seen.cancelled, 100);
}

TEST(Scheduler, EveryLaneHasItsShareOfTheAnswers) {
  World world(20000, {.context = 8000, .sequences_per_client = 16}, 2);
  for (int i = 0; i < 8; ++i) world.submit({.prompt = text(4, i), .options = {.max_tokens = 60}});
  for (int i = 0; i < 30; ++i) world.generator.step();
  for (int i = 0; i < 10; ++i) {
    world.generator.step();
    EXPECT_EQ(world.executor.tokens, std::vector<int>(4, 1));
  }
  while (world.generator.step()) continue;
  world.expect_answers();
}

TEST(Scheduler, APromptIsBoundedInTimeWhileOthersAreAnswered) {
  World world(20000, {.context = 8000, .piece = 512});
  world.submit({.prompt = text(1000, 1), .options = {.max_tokens = 400}});
  world.generator.step();
  EXPECT_EQ(world.executor.tokens, (std::vector<int>{512}));  // alone: whole blocks
  for (int i = 0; i < 3; ++i) world.generator.step();
  world.submit({.prompt = text(4000, 2), .options = {.max_tokens = 4}});
  int pieces = 0, prefilled = 0;
  const auto run_pieces = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const double before = world.executor.now_ms;
      world.generator.step();
      ASSERT_EQ(world.executor.tokens.size(), 2u);
      EXPECT_EQ(world.executor.tokens[0], 1);
      EXPECT_LE(world.executor.now_ms - before, world.executor.step_ms + 50);
      ++pieces;
      prefilled += world.executor.tokens[1];
    }
  };
  run_pieces(20);
  EXPECT_GE(prefilled * world.executor.token_ms / pieces, 40);  // and not much less than it may
  world.executor.token_ms = 2;                                  // it becomes slower: a few steps later it holds again
  for (int i = 0; i < 6; ++i) world.generator.step();
  world.executor.token_ms = 1.9;
  run_pieces(10);
  while (world.generator.step()) continue;
  world.expect_answers();
}

// They all come at once, so that no step was without a piece when the long one starts.
TEST(Scheduler, ManyThatAreAnsweredDoNotShrinkAPieceToNothing) {
  World world(20000, {.context = 8000, .piece = 512});
  world.executor.row_ms = 10;  // a step without a piece takes longer than a piece may
  for (int i = 0; i < 20; ++i) {
    world.submit({.prompt = text(8, i), .options = {.max_tokens = 200}, .client = std::to_string(i)});
  }
  world.submit({.prompt = text(4000, 99), .options = {.max_tokens = 4}, .client = "x"});
  int prefilled = 0, steps = 0;
  while (prefilled < 2000) {
    ASSERT_LT(++steps, 100);
    const double before = world.executor.now_ms;
    world.generator.step();
    const size_t rows = world.executor.tokens.size();
    if (rows == 21) prefilled += world.executor.tokens.back();
    EXPECT_LE(world.executor.now_ms - before, 10 + 10 * static_cast<double>(rows) + 50);
  }
  EXPECT_LT(steps, 40 + 2000 / 40);
}

TEST(Scheduler, APauseOfTheMachineMakesNoPieceLarger) {
  World world(20000, {.context = 8000, .piece = 512});
  world.submit({.prompt = text(1000, 1), .options = {.max_tokens = 400}});
  for (int i = 0; i < 6; ++i) {
    world.executor.step_ms = i == 5 ? 1000 : 10;  // a pause in a step without a piece
    world.generator.step();
  }
  world.submit({.prompt = text(4000, 2), .options = {.max_tokens = 4}});
  int without = 0;
  for (int i = 0; i < 40; ++i) {
    world.executor.step_ms = i == 12 ? 1000 : 10;  // and in one with it
    world.generator.step();
    without += world.executor.tokens.size() == 1;  // the time of such steps is measured again
    if (world.executor.tokens.size() == 1) continue;
    EXPECT_LE(world.executor.tokens[1] * world.executor.token_ms, 50) << i;
  }
  EXPECT_EQ(without, 1);
  EXPECT_GT(world.executor.tokens.back() * world.executor.token_ms, 40);
}

TEST(Scheduler, ACancelledRequestIsInNoLaterStep) {
  World world(1000, {.context = 400, .sequences = 2, .piece = 16});
  const uint64_t decoding = world.submit({.prompt = text(8), .options = {.max_tokens = 100}});
  world.generator.step();
  const uint64_t prefilling = world.submit({.prompt = text(200, 3), .options = {.max_tokens = 100}, .samples = 1});
  for (int i = 0; i < 2; ++i) world.generator.step();
  const uint64_t waiting = world.submit({.prompt = text(20, 4)});
  ASSERT_EQ(world.executor.tokens.size(), 2u);
  const size_t pages = world.executor.cache().held_pages();
  world.generator.cancel(prefilling);
  EXPECT_TRUE((world.told[{prefilling, 0}].finished));
  EXPECT_LT(world.executor.cache().held_pages(), pages);
  world.generator.cancel(waiting);
  world.generator.step();
  EXPECT_EQ(world.executor.tokens, (std::vector<int>{1}));
  world.generator.cancel(decoding);
  world.generator.cancel(decoding);
  EXPECT_FALSE(world.generator.step());
  for (const uint64_t id : {decoding, prefilling, waiting}) {
    EXPECT_EQ((world.told[{id, 0}].result.stop_reason), StopReason::kInterrupted);
  }
  EXPECT_EQ(world.executor.cache().held_pages(), 0u);
}

TEST(Scheduler, AFullQueueRefusesAtOnce) {
  World world(1000, {.context = 100, .sequences = 1, .queue = 4, .queue_per_client = 3});
  for (int i = 0; i < 3; ++i) EXPECT_NE(world.submit({.prompt = text(10), .client = "a"}), 0u);
  EXPECT_EQ(world.submit({.prompt = text(10), .client = "a"}), 0u);
  EXPECT_EQ(world.refusal, Refusal::kClientQueueFull);
  EXPECT_NE(world.submit({.prompt = text(10), .client = "b"}), 0u);
  EXPECT_EQ(world.submit({.prompt = text(10), .client = "c"}), 0u);
  EXPECT_EQ(world.refusal, Refusal::kQueueFull);
  world.generator.step();
  EXPECT_NE(world.submit({.prompt = text(10), .client = "c"}), 0u);
  while (world.generator.step()) continue;
  world.expect_answers();
}

TEST(Scheduler, OneClientCannotStarveTheRest) {
  World world(2000, {.context = 100, .sequences = 6, .sequences_per_client = 4});
  std::vector<uint64_t> many;
  const GenerateOptions twenty{.max_tokens = 20, .sampling = {.temperature = 1}};
  for (int i = 0; i < 40; ++i)
    many.push_back(world.submit({.prompt = text(30, i), .options = twenty, .client = "many"}));
  for (int i = 0; i < 10; ++i) world.generator.step();
  EXPECT_EQ(world.generator.scheduler().running(), 4u);
  const uint64_t one = world.submit({.prompt = text(30, 99), .options = twenty, .client = "one"});
  world.generator.step();
  EXPECT_EQ(world.generator.scheduler().running(), 5u);  // at once, before 36 that came earlier
  while (world.generator.step()) continue;
  int later = 0;
  for (const uint64_t id : many) later += world.told[{id, 0}].at_ms > world.told[{one, 0}].at_ms;
  EXPECT_GE(later, 32);
  // First come, first served among equals: the same length, so the same order.
  for (size_t i = 4; i < many.size(); ++i) {
    EXPECT_GE((world.told[{many[i], 0}].result.timing.queued_ms),
              (world.told[{many[i - 1], 0}].result.timing.queued_ms));
  }
  world.expect_answers();
}

// The room that one client leaves is not taken by the next greedy one: whose client has nothing running comes next.
TEST(Scheduler, TwoClientsCannotStarveAThird) {
  World world(2000, {.context = 100, .sequences = 6, .sequences_per_client = 4});
  const GenerateOptions twenty{.max_tokens = 20, .sampling = {.temperature = 1}};
  std::vector<uint64_t> greedy;
  for (int i = 0; i < 40; ++i)
    greedy.push_back(world.submit({.prompt = text(30, i), .options = twenty, .client = i < 20 ? "a" : "b"}));
  for (int i = 0; i < 12; ++i) world.generator.step();
  EXPECT_EQ(world.generator.scheduler().running(), 6u);
  const uint64_t one = world.submit({.prompt = text(30, 99), .options = twenty, .client = "one"});
  while (world.generator.step()) continue;
  int later = 0;
  for (const uint64_t id : greedy) later += world.told[{id, 0}].at_ms > world.told[{one, 0}].at_ms;
  EXPECT_GE(later, 28);  // all but the six that ran, and those that took the places of five of them
  world.expect_answers();
}

// Two clients, and pages for little more than one long answer: those of the client with many requests start after the
// other's only one, so they are put back for it, never it for them.
TEST(Scheduler, WhoStartedFirstIsNeverPutBackForALaterOne) {
  World world(90, {.context = 160, .sequences = 6, .sequences_per_client = 2});
  const GenerateOptions longest{.max_tokens = 100, .sampling = {.temperature = 1, .seed = 3}};
  const uint64_t first = world.submit({.prompt = text(40, 1), .options = longest, .client = "one"});
  for (int i = 0; i < 12; ++i) world.submit({.prompt = text(30, 10 + i), .options = longest, .client = "many"});
  int put_back = 0;
  while (!world.told[{first, 0}].finished) {
    ASSERT_TRUE(world.generator.step());
    put_back += world.generator.scheduler().put_back() > 0;
  }
  EXPECT_GT(put_back, 0);
  const Timing& timing = world.told[{first, 0}].result.timing;
  EXPECT_EQ(timing.decoded, static_cast<int>(world.told[{first, 0}].result.token_ids.size()) - 1);
  while (world.generator.step()) continue;
  world.expect_answers();
  EXPECT_EQ(world.executor.cache().held_pages(), 0u);
}

TEST(Scheduler, APromptWithSeveralAnswersRunsOnce) {
  World world(2000, {.context = 200});
  const GenerateOptions options{.max_tokens = 12, .sampling = {.temperature = 1, .seed = 40}};
  world.submit({.prompt = text(50), .options = options, .samples = 5});
  while (world.generator.step()) continue;
  world.expect_answers();
  EXPECT_EQ(world.executor.total, 50 + 5 * 11);
  std::set<std::vector<int32_t>> different;
  for (const auto& [id, to] : world.told) different.insert(to.result.token_ids);
  EXPECT_GT(different.size(), 1u);
}

TEST(Scheduler, TellsWhatWasFoundInTheCache) {
  World world(4000, {.context = 1000});
  const auto found = [&](std::vector<int32_t> prompt, uint64_t salt) {
    const size_t size = prompt.size();
    const uint64_t id = world.submit({.prompt = std::move(prompt), .options = {.max_tokens = 3}, .salt = salt});
    while (world.generator.step()) continue;
    const Timing& timing = world.told[{id, 0}].result.timing;
    EXPECT_EQ(timing.found + timing.prefilled, static_cast<int>(size));
    return timing.found;
  };
  std::vector<int32_t> second = text(410);
  for (size_t i = 400; i < second.size(); ++i) second[i] = 21;
  EXPECT_EQ(found(text(410), 0), 0);
  EXPECT_EQ(found(text(300, 5), 0), 0);  // an unrelated one between
  EXPECT_EQ(found(second, 0), 400);
  EXPECT_EQ(found(second, 1), 0);
  EXPECT_EQ(found(text(410), 0), 408);
  world.expect_answers();
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  World world(60, {.context = 1000});
  const int context = world.generator.scheduler().context();
  EXPECT_LT(context, 240);  // what 60 pages of three layers hold
  EXPECT_GT(context, 80);
  EXPECT_THROW(world.submit({.prompt = {}}), Failure);
  EXPECT_THROW(world.submit({.prompt = text(context + 1)}), Failure);
  EXPECT_THROW(world.submit({.prompt = {1, kVocab, 2}}), Failure);
  EXPECT_THROW(world.submit({.prompt = text(3), .samples = 65}), Failure);
  EXPECT_THROW(world.submit({.prompt = text(3), .options = {.sampling = {.temperature = -1}}}), Failure);
  world.submit({.prompt = text(context), .options = {.max_tokens = 5}});
  while (world.generator.step()) continue;
  EXPECT_EQ(world.told.begin()->second.result.stop_reason, StopReason::kContextFull);
  world.expect_answers();
}

// A scheduler driven by hand, with tokens that a hash chooses.
struct Hand {
  explicit Hand(size_t pages)
      : executor(pages), scheduler(executor.cache(), {.context = 100, .sequences = 4, .piece = 12}) {}

  std::span<const Scheduler::Row> step() {
    const std::span<const Scheduler::Row> rows = scheduler.step(executor.now_ms);
    line = scheduler.describe();
    starts.clear();
    std::vector<BatchItem> batch;
    for (const Scheduler::Row& row : rows) {
      starts.push_back(row.item.sequence->length());
      batch.push_back(row.item);
    }
    executor.run(batch);
    scheduler.ran(executor.now_ms);
    for (const Scheduler::Row& row : rows) {
      for (int k = 0; k < row.choices; ++k) {
        const SampleId id{row.id.request, row.id.sample + k};
        const uint64_t hash = mix(static_cast<uint64_t>(executor.now_ms), id.request);
        if (hash % 15 == 0 && executor.now_ms > ends_after_ms) {
          scheduler.finish(id);
        } else {
          scheduler.choose(id, static_cast<int32_t>(hash % 20));
        }
      }
    }
    return rows;
  }

  FakeExecutor executor;
  Scheduler scheduler;
  double ends_after_ms = 1e9;  // answers end at random from here on
  std::string line;            // what the last step decided
  std::vector<int> starts;     // of its rows: positions
};

TEST(Scheduler, NobodyStartsWithoutPagesForAllItsTokens) {
  Hand hand(36);
  hand.scheduler.submit({.prompt = text(60, 1)});
  hand.scheduler.submit({.prompt = text(60, 2)});
  for (int i = 0; i < 20; ++i) {
    hand.step();
    EXPECT_EQ(hand.scheduler.running(), 1u);
    EXPECT_EQ(hand.scheduler.put_back(), 0u);
  }
  hand.scheduler.finish({1, 0});
  EXPECT_EQ(hand.step()[0].id.request, 2u);
}

TEST(Scheduler, WhoWasPutBackGoesOnBeforeOthersWhereItsBlocksEnd) {
  Hand hand(60);
  hand.scheduler.submit({.prompt = text(40, 1)});
  hand.scheduler.submit({.prompt = text(40, 2)});
  for (int i = 0; hand.scheduler.put_back() == 0; ++i) {
    ASSERT_LT(i, 100);
    hand.step();
  }
  hand.scheduler.submit({.prompt = text(4, 3)});  // small enough for the pages that became free
  EXPECT_EQ(hand.step().size(), 1u);
  EXPECT_EQ(hand.scheduler.waiting(), 1u);
  hand.scheduler.finish({1, 0});
  const std::span<const Scheduler::Row> rows = hand.step();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].id.request, 2u);
  EXPECT_GT(hand.starts[0], 40);  // behind the prompt: tokens that were chosen were found, too
}

std::vector<std::string> decisions(int steps) {
  Hand hand(60);
  hand.ends_after_ms = 500;
  std::vector<std::string> lines;
  for (int i = 0; i < steps; ++i) {
    if (i % 5 == 0) hand.scheduler.submit({.prompt = text(30, i), .samples = i == 0 ? 2 : 1, .client = "c"});
    hand.step();
    lines.push_back(hand.line);
  }
  return lines;
}

TEST(Scheduler, TheSameCallsGiveTheSameDecisionsAndTheyCanBeRead) {
  const std::vector<std::string> lines = decisions(120);
  EXPECT_EQ(lines, decisions(120));
  EXPECT_EQ(lines[0],
            "step 1 at 0.0 ms: prefill 1.0 0 to 12 of 30 (0 found); 1 running, 0 put back, 0 waiting, "
            "9 of 60 pages held");
  EXPECT_EQ(lines[3].substr(0, 38), "step 4 at 54.0 ms: decode 1.0 1.1; 2 r");
  const auto any = [&](std::string_view what) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(what) != line.npos; });
  };
  EXPECT_TRUE(any("; put back "));
}

}  // namespace
}  // namespace doppler
