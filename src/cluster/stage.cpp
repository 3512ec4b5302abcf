#include "cluster/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "model/cost.h"

namespace doppler {
namespace {

constexpr int kMeasuredContext = 128, kMeasuredRuns = 9;  // tokens

using Clock = std::chrono::steady_clock;

std::span<const float> floats(std::span<const std::byte> bytes, std::vector<float>& aligned) {
  aligned.resize(bytes.size() / sizeof(float));
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  return aligned;
}

// One model, from its opening to its end.
void run_one(Transport& transport, const Opening& opening, const Plan& plan, const Weights& weights,
             const StageBackend& backend) {
  const int rank = transport.rank(), ranks = transport.size(), next = (rank + 1) % ranks;
  if (opening.digest != digest_of(plan, weights)) {
    fail({.code = ErrorCode::kUsage,
          .what = "this rank has another model than the first",
          .where = fmt::format("rank {}", rank),
          .todo = "Give every rank the same model"});
  }
  const Ability ability = measure(plan, weights, opening.context, rank, ranks, backend);
  transport.send(0, Writer().put(ability).take());
  const Message said = transport.receive(0);
  Reader reader(said);
  if (reader.get<MessageKind>() != MessageKind::kStage) return;
  Division division;
  division.page_tokens = reader.get<int>();
  division.context = reader.get<int>();
  division.rows = reader.get<int>();
  division.states = reader.get<uint64_t>();
  division.borders = reader.get_list<int>();
  division.blocks = reader.get_list<size_t>();
  Stage stage(plan, division, rank, ability.page_tokens, backend);
  transport.send(0, Writer().put(stage.built(weights)).take());
  std::vector<float> input;
  while (true) {
    const Message message = transport.receive(rank - 1);
    Reader batch_reader(message);
    if (batch_reader.get<MessageKind>() == MessageKind::kClose) {
      if (next != 0) transport.send(next, message);
      return;
    }
    const StageBatch batch = read_batch(batch_reader);
    const size_t header = batch_reader.at();
    const std::span<const float> rows = stage.run(batch, floats(batch_reader.rest(), input));
    Writer answer;
    if (stage.last()) {
      stage.answer(batch, rows, answer);
    } else {
      answer.put_all(std::span(message).first(header)).put_all(rows);
    }
    transport.send(next, answer.take());
  }
}

}  // namespace

// FNV-1a over what the plan computes and what its weights are.
uint64_t digest_of(const Plan& plan, const Weights& weights) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  };
  for (const Step& step : plan.steps) {
    add(describe(step, plan));
    for (const WeightUse& use : step.weights) add(name_of(weights.at(use.slot).dtype));
  }
  return hash;
}

size_t width_of(const Plan& plan, int value) {
  return static_cast<size_t>(plan.values[static_cast<size_t>(value)].width);
}

Stage::Stage(const Plan& plan, const Division& division, int rank, int page_tokens, const StageBackend& backend)
    : plan_(slice(plan, division.borders[static_cast<size_t>(rank)], division.borders[static_cast<size_t>(rank) + 1])),
      map_(make_kv_layout(plan, division.page_tokens, division.context),
           make_kv_layout(plan_, page_tokens, division.context)),
      choose_(backend.choose) {
  ExecutorOptions options = backend.options;
  options.context = division.context;
  options.block = division.rows;
  options.stage = map_.own_cache(division.blocks, division.states);
  executor_ = backend.make(plan_, options);
}

Built Stage::built(const Weights& weights) const {
  return {weight_bytes(plan_, weights), executor_->context_bytes(), executor_->min_prefill_tokens(),
          executor_->cache().phases_agree()};
}

std::span<const float> Stage::run(const StageBatch& batch, std::span<const float> input) {
  KvCache& cache = executor_->cache();
  for (const KvCache::BlockCopy& copy : batch.copies) map_.copy(copy, cache);
  std::vector<Sequence> sequences(batch.items.size());
  std::vector<BatchItem> items;
  const size_t width = plan_.input < 0 ? 0 : width_of(plan_, plan_.input);
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const StageItem& item = batch.items[i];
    sequences[i] = cache.start();
    cache.place(sequences[i], map_.own_place(item.place));
    const Logits want = !last() ? Logits::kAll : item.want == Logits::kBest ? Logits::kLast : item.want;
    items.push_back({&sequences[i], item.tokens, item.phase, want, input.first(item.tokens.size() * width)});
    input = input.subspan(item.tokens.size() * width);
  }
  return executor_->run(items);
}

void Stage::answer(const StageBatch& batch, std::span<const float> logits, Writer& to) const {
  const size_t vocab = width_of(plan_, plan_.steps.back().output);
  std::vector<int32_t> best;
  Writer rows;
  for (const StageItem& item : batch.items) {
    const size_t count = item.want == Logits::kNone ? 0 : item.want == Logits::kAll ? item.tokens.size() : 1;
    const std::span<const float> mine = logits.first(count * vocab);
    logits = logits.subspan(count * vocab);
    if (item.want == Logits::kBest) {
      best.push_back(choose_(mine));
    } else {
      rows.put_all(mine);
    }
  }
  to.put(MessageKind::kResult).put(batch.ticket).put_list(best);
  to.put_all(std::span<const std::byte>(rows.take()));
}

Ability measure(const Plan& plan, const Weights& weights, int context, int rank, int ranks,
                const StageBackend& backend) {
  std::vector<int> borders = possible_cuts(plan);
  borders.insert(borders.begin(), 0);
  borders.push_back(layer_count(plan));
  const size_t parts = borders.size() - 1;
  const size_t part = std::min(static_cast<size_t>(rank) * parts / static_cast<size_t>(ranks), parts - 1);
  const Plan stage = slice(plan, borders[part], borders[part + 1]);
  ExecutorOptions options = backend.options;
  options.context = std::min(context, kMeasuredContext);
  options.cache_memory = 0;
  options.sequences = 1;
  const std::unique_ptr<Executor> executor = backend.make(stage, options);
  Ability ability{backend.speed, backend.memory, executor->cache().layout().page_tokens};
  if (backend.speed > 0) return ability;
  Sequence sequence = executor->cache().start();
  const int32_t token = 0;
  std::vector<float> row(stage.input < 0 ? 0 : width_of(stage, stage.input));
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i % 7) - 3;
  const Logits want = stage.steps.back().logits_only ? Logits::kLast : Logits::kAll;
  std::vector<double> seconds;
  for (int run = 0; run < std::min(kMeasuredRuns, options.context); ++run) {
    const BatchItem item{&sequence, std::span(&token, 1), Phase::kDecode, want, row};
    const auto start = Clock::now();
    executor->run(std::span(&item, 1));
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  ability.speed = decode_cost(stage, weights, 0).bytes() / seconds[seconds.size() / 2];
  return ability;
}

size_t wire_bytes(std::span<const WireItem> items, int groups, int hidden, int copies) {
  size_t bytes = sizeof(MessageKind) + sizeof(uint64_t) + 2 * sizeof(uint32_t) +
                 static_cast<size_t>(copies) * sizeof(KvCache::BlockCopy);
  for (const WireItem& item : items) {
    const size_t tokens = static_cast<size_t>(item.tokens);
    bytes += 2 + sizeof(int) + 2 * sizeof(uint32_t) + static_cast<size_t>(groups) * (sizeof(int) + sizeof(uint32_t)) +
             static_cast<size_t>(item.table_entries) * sizeof(int32_t) +
             tokens * (sizeof(int32_t) + static_cast<size_t>(hidden) * sizeof(float));
  }
  return bytes;
}

void run_stages(Transport& transport, const Plan& plan, const Weights& weights, const StageBackend& backend) {
  while (true) {
    const Message message = transport.receive(0);
    Reader reader(message);
    if (reader.get<MessageKind>() != MessageKind::kOpen) return;
    run_one(transport, reader.get<Opening>(), plan, weights, backend);
  }
}

}  // namespace doppler
