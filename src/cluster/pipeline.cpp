#include "cluster/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>

#include "base/error.h"
#include "cluster/stage.h"
#include "model/cost.h"
#include "model/state_layout.h"

namespace doppler {
namespace {

constexpr int kMostRows = 512;        // of a batch on its way; a backend's block
constexpr int kLeastRows = 64;        // of a prompt's piece, where it is cut so that stages work at once
constexpr int kPieceWorthAPass = 64;  // tokens of a prompt, if its rest must then be run by itself

// Measures differ by chance: what is near the fastest counts as equal to it, so that equal ranks get equal shares.
void level(std::vector<RankPower>& ranks) {
  constexpr double kSteps = 4;  // of a halving
  double fastest = 0;
  for (const RankPower& rank : ranks) fastest = std::max(fastest, rank.speed);
  for (RankPower& rank : ranks) rank.speed = std::exp2(std::round(kSteps * std::log2(rank.speed / fastest)) / kSteps);
}

// Of keys and values of a whole context, in 16 bits; a window's with what is run at once.
uint64_t bytes_of_context(const Plan& plan, const KvLayout& layout, int context) {
  uint64_t bytes = 0;
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op) continue;
    const int group = layout.places[static_cast<size_t>(op->layer)].group;
    const size_t blocks = layout.blocks_of(layout.groups[static_cast<size_t>(group)], context, kMostRows);
    bytes += blocks * static_cast<size_t>(layout.page_tokens * op->kv_heads * op->head_dim) * 2 * sizeof(uint16_t);
  }
  return bytes;
}

// Blocks of each group: what --cache-memory holds of whole contexts, or as many as there are sequences.
std::vector<size_t> blocks_for(const KvLayout& layout, uint64_t one, int context, const ExecutorOptions& options) {
  const int rows = std::min(kMostRows, context);
  double times = options.sequences;
  if (options.cache_memory > 0 && one > 0) times = static_cast<double>(options.cache_memory) / static_cast<double>(one);
  std::vector<size_t> blocks;
  for (const KvLayout::Group& group : layout.groups) {
    if (group.state) continue;
    const double whole = times * static_cast<double>(layout.blocks_of(group, context, rows));
    blocks.push_back(std::max(static_cast<size_t>(whole), layout.blocks_of(group, rows, rows)));
  }
  return blocks;
}

class Pipeline : public Executor {
 public:
  Pipeline(Transport& transport, const ModelConfig& config, const Plan& plan, const Weights& weights,
           StageBackend backend, const std::function<void(const std::string&)>& about)
      : transport_(transport),
        config_(config),
        plan_(plan),
        backend_(std::move(backend)),
        about_(about),
        context_(backend_.options.context),
        most_rows_(std::min(context_, backend_.options.block > 0 ? backend_.options.block : kMostRows)),
        vocab_(width_of(plan, plan.steps.back().output)) {
    const int ranks = transport.size();
    const uint64_t digest = digest_of(plan, weights);
    for (int r = 1; r < ranks; ++r)
      transport.send(r, Writer().put(MessageKind::kOpen).put(Opening{digest, context_}).take());
    std::vector<Ability> abilities{measure(plan, weights, context_, 0, ranks, backend_)};
    for (int r = 1; r < ranks; ++r) abilities.push_back(Reader(transport.receive(r)).get<Ability>());

    Division division = divide_among(abilities, weights);
    for (int r = 1; r < ranks; ++r) {
      Writer stage;
      stage.put(MessageKind::kStage).put(division.page_tokens).put(division.context).put(division.rows);
      stage.put(division.states);
      transport.send(r, stage.put_list(division.borders).put_list(division.blocks).take());
    }
    stage_ = std::make_unique<Stage>(plan, division, 0, abilities[0].page_tokens, backend_);
    std::vector<Built> built{stage_->built(weights)};
    for (int r = 1; r < ranks; ++r) built.push_back(Reader(transport.receive(r)).get<Built>());
    bool agree = true;
    for (int r = 0; r < ranks; ++r) {
      const Built& b = built[static_cast<size_t>(r)];
      agree &= b.phases_agree;
      min_prefill_ = std::max(min_prefill_, b.min_prefill_tokens);
      cache_bytes_ += b.cache_bytes;
      if (!about) continue;
      about(fmt::format("rank {}: layers {} to {}, {:.1f} MiB of weights, {:.1f} MiB of cache", r,
                        division.borders[static_cast<size_t>(r)], division.borders[static_cast<size_t>(r) + 1] - 1,
                        static_cast<double>(b.weight_bytes) / (1 << 20),
                        static_cast<double>(b.cache_bytes) / (1 << 20)));
    }
    cache_.emplace(make_kv_layout(plan, division.page_tokens, context_),
                   KvCache::Options{.blocks = division.blocks, .states = division.states, .phases_agree = agree});
  }

  ~Pipeline() override {
    try {
      if (about_) {
        about_(
            fmt::format("to rank 1: {} tokens in {} batches, {} bytes as reckoned and {} sent, {:.0f} per token",
                        tokens_sent_, tickets_, bytes_reckoned_, bytes_sent_,
                        static_cast<double>(bytes_sent_) / static_cast<double>(std::max<uint64_t>(tokens_sent_, 1))));
      }
      drain();
      transport_.send(1, Writer().put(MessageKind::kClose).take());
    } catch (const Failure&) {  // a rank is gone; whoever asks it next is told
    }
  }

  std::string_view name() const override { return "pipeline"; }
  KvCache& cache() override { return *cache_; }
  size_t context_bytes() const override { return cache_bytes_; }
  int min_prefill_tokens() const override { return min_prefill_; }
  bool can_choose() const override { return true; }
  std::span<const int32_t> best() const override { return best_; }
  bool can_tap() const override { return false; }

  void set_tap(Tap tap) override {
    if (!tap) return;
    fail({.code = ErrorCode::kUnsupported,
          .what = "steps cannot be looked at where layers are divided among ranks",
          .where = "mpirun",
          .todo = "Run the model in one process"});
  }

  std::span<const float> run(std::span<const BatchItem> batch) override {
    drain();  // what a run that failed left on its way
    start(batch);
    return finish();
  }

  // While a batch is at each rank, one can be at the first.
  int lanes() const override { return transport_.size(); }

  void start(std::span<const BatchItem> items) override {
    batches_.push_back({.items = {items.begin(), items.end()}, .answers = {}, .waiting = 0});
    Batch& batch = batches_.back();
    const std::vector<Piece> pieces = begin(batch);
    for (size_t next = 0; next < pieces.size();) {
      std::vector<Piece> together;
      int rows = 0;
      const auto fits = [&](const Piece& piece) {  // a sequence is in a batch once
        const auto same = [&](const Piece& other) { return other.item == piece.item; };
        return rows + piece.count <= piece_ && std::none_of(together.begin(), together.end(), same);
      };
      for (; next < pieces.size() && fits(pieces[next]); ++next) {
        rows += pieces[next].count;
        together.push_back(pieces[next]);
      }
      send(batch, together);
      while (on_way_.size() > 2 * static_cast<size_t>(transport_.size())) take_result();
    }
  }

  std::span<const float> finish() override {
    Batch& batch = batches_.front();
    while (batch.waiting > 0) take_result();
    best_.clear();
    results_.clear();
    for (size_t i = 0; i < batch.items.size(); ++i) {
      if (batch.items[i].want == Logits::kBest) best_.push_back(batch.answers[i].best);
      results_.insert(results_.end(), batch.answers[i].logits.begin(), batch.answers[i].logits.end());
    }
    batches_.pop_front();
    return results_;
  }

 private:
  // Tokens of an item that run at once.
  struct Piece {
    size_t item = 0, first = 0;
    int count = 0;
  };
  struct Answer {
    std::vector<float> logits;
    int32_t best = 0;
  };
  struct Batch {
    std::vector<BatchItem> items;
    std::vector<Answer> answers;  // by item
    int waiting = 0;              // messages on their way
  };
  struct OnWay {
    uint64_t ticket = 0;
    Batch* batch = nullptr;
    std::vector<Piece> pieces;
  };

  Division divide_among(const std::vector<Ability>& abilities, const Weights& weights) const {
    Division division{.context = context_, .rows = most_rows_};
    std::vector<RankPower> ranks;
    for (const Ability& ability : abilities) {
      division.page_tokens = std::max(division.page_tokens, ability.page_tokens);
      ranks.push_back({ability.speed, ability.memory});
    }
    for (const Ability& ability : abilities) {
      if (division.page_tokens % ability.page_tokens == 0) continue;
      fail({.code = ErrorCode::kUnsupported,
            .what = "the ranks' pages of keys and values do not fit each other",
            .expected = fmt::format("a part of {} tokens", division.page_tokens),
            .got = std::to_string(ability.page_tokens)});
    }
    level(ranks);
    const KvLayout layout = make_kv_layout(plan_, division.page_tokens, context_);
    const uint64_t one = bytes_of_context(plan_, layout, context_);
    division.blocks = blocks_for(layout, one, context_, backend_.options);
    division.states = state_copies(make_state_layout(plan_), backend_.options.sequences);
    const uint64_t cache = backend_.options.cache_memory > 0 ? backend_.options.cache_memory
                                                             : one * static_cast<uint64_t>(backend_.options.sequences);
    const int layers = layer_count(plan_);
    const std::vector<int> cuts = possible_cuts(plan_);
    std::vector<LayerNeed> needs(static_cast<size_t>(layers));
    std::vector<int> borders{0};
    borders.insert(borders.end(), cuts.begin(), cuts.end());
    borders.push_back(layers);
    for (size_t b = 0; b + 1 < borders.size(); ++b) {
      const Plan part = slice(plan_, borders[b], borders[b + 1]);
      const int count = borders[b + 1] - borders[b];
      needs[static_cast<size_t>(borders[b])] = {
          decode_cost(part, weights, context_ / 2).bytes(),
          weight_bytes(part, weights) + cache * static_cast<uint64_t>(count) / static_cast<uint64_t>(layers)};
    }
    division.borders = divide(needs, cuts, ranks);
    return division;
  }

  // The batch in pieces, in the order in which they run: tokens that are decoded first.
  std::vector<Piece> begin(Batch& to) {
    const std::vector<BatchItem>& batch = to.items;
    int prompt_rows = 0;
    to.answers.resize(batch.size());
    for (const BatchItem& item : batch) {
      check_tokens(config_, item.tokens, item.sequence->length(), context_);
      if (item.phase == Phase::kPrefill) prompt_rows += static_cast<int>(item.tokens.size());
    }
    // Twice as many pieces as stages keep all of them busy most of the time.
    piece_ = prompt_rows / (2 * transport_.size()) / kLeastRows * kLeastRows;
    piece_ = std::clamp(piece_, std::min(kLeastRows, most_rows_), most_rows_);
    std::vector<Piece> pieces;
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      for (size_t i = 0; i < batch.size(); ++i) {
        if (batch[i].phase != phase) continue;
        const int length = batch[i].sequence->length(), all = static_cast<int>(batch[i].tokens.size());
        for (int at = 0, count = 0; at < all; at += count) {
          count = std::min(piece_, all - at);
          if (phase == Phase::kPrefill) count = cache_->piece_of_prompt(length + at, count, kPieceWorthAPass);
          pieces.push_back({i, static_cast<size_t>(at), count});
        }
      }
    }
    return pieces;
  }

  void send(Batch& of, std::span<const Piece> pieces) {
    StageBatch batch;
    batch.ticket = ++tickets_;
    for (const Piece& piece : pieces) {
      const BatchItem& item = of.items[piece.item];
      Sequence& sequence = *item.sequence;
      const std::span<const int32_t> tokens = item.tokens.subspan(piece.first, static_cast<size_t>(piece.count));
      const int back = item.phase == Phase::kDecode ? static_cast<int>(piece.first) : 0;
      reserve_room(*cache_, sequence, piece.count, back);
      const bool last = piece.first + tokens.size() == item.tokens.size();
      const bool wanted = item.want == Logits::kAll || last;
      StageItem& to = batch.items.emplace_back();
      to = {item.phase, wanted ? item.want : Logits::kNone, cache_->place_of(sequence), {tokens.begin(), tokens.end()}};
    }
    for (const Piece& piece : pieces) {
      const BatchItem& item = of.items[piece.item];
      cache_->append(*item.sequence, item.tokens.subspan(piece.first, static_cast<size_t>(piece.count)), item.phase);
    }
    batch.copies = cache_->take_block_copies();
    const std::span<const float> rows = stage_->run(batch, {});
    Writer message;
    write(message, batch);
    count(batch, message.put_all(rows).size());
    transport_.send(1, message.take());
    on_way_.push_back({batch.ticket, &of, {pieces.begin(), pieces.end()}});
    ++of.waiting;
  }

  void count(const StageBatch& batch, size_t bytes) {
    std::vector<WireItem> items;
    for (const StageItem& item : batch.items) {
      WireItem& counted = items.emplace_back();
      counted.tokens = static_cast<int>(item.tokens.size());
      for (const std::vector<int32_t>& table : item.place.tables)
        counted.table_entries += static_cast<int>(table.size());
      tokens_sent_ += item.tokens.size();
    }
    bytes_sent_ += bytes;
    bytes_reckoned_ += wire_bytes(items, static_cast<int>(cache_->layout().groups.size()), config_.hidden,
                                  static_cast<int>(batch.copies.size()));
  }

  void take_result() {
    const Message message = transport_.receive(transport_.size() - 1);
    Reader reader(message);
    const auto kind = reader.get<MessageKind>();
    const uint64_t ticket = reader.get<uint64_t>();
    OnWay done = std::move(on_way_.front());
    on_way_.pop_front();
    if (kind != MessageKind::kResult || ticket != done.ticket)
      fail({.code = ErrorCode::kInternal, .what = "the last rank answered something that was not asked"});
    const std::vector<int32_t> best = reader.get_list<int32_t>();
    size_t chosen = 0;
    --done.batch->waiting;
    for (const Piece& piece : done.pieces) {
      const BatchItem& item = done.batch->items[piece.item];
      const bool last = piece.first + static_cast<size_t>(piece.count) == item.tokens.size();
      Answer& answered = done.batch->answers[piece.item];
      if (item.want == Logits::kBest) {
        if (last) answered.best = best.at(chosen++);
        continue;
      }
      const size_t count = item.want == Logits::kAll            ? static_cast<size_t>(piece.count)
                           : item.want == Logits::kLast && last ? 1
                                                                : 0;
      const std::vector<float> logits = reader.get_all<float>(count * vocab_);
      answered.logits.insert(answered.logits.end(), logits.begin(), logits.end());
    }
  }

  void drain() {
    for (; !on_way_.empty(); on_way_.pop_front()) transport_.receive(transport_.size() - 1);
    batches_.clear();
  }

  Transport& transport_;
  const ModelConfig config_;
  const Plan plan_;
  StageBackend backend_;
  const std::function<void(const std::string&)> about_;
  const int context_, most_rows_;
  const size_t vocab_;
  std::unique_ptr<Stage> stage_;
  std::optional<KvCache> cache_;
  size_t cache_bytes_ = 0;
  int min_prefill_ = 1, piece_ = 1;
  uint64_t tickets_ = 0, tokens_sent_ = 0, bytes_sent_ = 0, bytes_reckoned_ = 0;
  std::deque<Batch> batches_;  // started; what points to them stays right, since they come and go at the ends
  std::deque<OnWay> on_way_;
  std::vector<float> results_;
  std::vector<int32_t> best_;
};

}  // namespace

std::unique_ptr<Executor> make_pipeline(Transport& transport, const ModelConfig& config, const Plan& plan,
                                        const Weights& weights, StageBackend backend,
                                        const std::function<void(const std::string&)>& about) {
  return std::make_unique<Pipeline>(transport, config, plan, weights, std::move(backend), about);
}

void end_stages(Transport& transport) {
  for (int rank = 1; rank < transport.size(); ++rank) transport.send(rank, Writer().put(MessageKind::kEnd).take());
}

}  // namespace doppler
