#include "engine/embedding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/not_finite.h"
#include "format/decode.h"

namespace doppler {
namespace {

// Tokens between two turns of others. Where a model makes text, its final norm is computed where logits are, so these
// are all there.
constexpr size_t kSlice = 256, kLogitsBytes = 64 << 20;
constexpr size_t kLanes = 8;  // sums of a row side by side, so that a compiler makes vectors of them

double dot(const float* w, const double* x, size_t n) {
  double sums[kLanes] = {}, sum = 0;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(w[i + lane]) * x[i + lane];
  }
  for (; i < n; ++i) sum += static_cast<double>(w[i]) * x[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

std::string prompt_named(const LoadedModel& model, const std::string& name) {
  const std::string& wanted = name.empty() ? model.default_prompt : name;
  if (wanted.empty()) return "";
  const auto found = model.prompts.find(wanted);
  if (found != model.prompts.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, text] : model.prompts) names.push_back(known);
  fail({.code = ErrorCode::kUsage,
        .what = "the model has no prompt of this name",
        .where = model.config.id,
        .expected = names.empty() ? "none: it has no prompts" : fmt::format("one of {}", fmt::join(names, ", ")),
        .got = wanted});
}

}  // namespace

std::vector<int32_t> tokens_to_embed(const LoadedModel& model, const std::string& text, const EmbedText& options) {
  const Tokenizer& tokenizer = model.need_tokenizer();
  const std::string whole = prompt_named(model, options.prompt_name) + text;
  std::vector<int32_t> tokens = tokenizer.encode(whole, true);
  const auto longest = static_cast<size_t>(options.longest);
  if (tokens.size() <= longest) return tokens;
  if (!options.truncate) {
    fail({.code = ErrorCode::kUsage,
          .what = "a text is longer than the context",
          .where = model.config.id,
          .expected = fmt::format("at most {} tokens", longest),
          .got = fmt::format("{}", tokens.size()),
          .todo = "Use a larger --context, shorter texts, or --truncate to cut them"});
  }
  // Of the tokens around a text some stand behind it.
  const std::vector<int32_t> plain = tokenizer.encode(whole, false);
  const size_t around = tokens.size() - std::min(plain.size(), tokens.size());
  size_t before = 0;
  while (before < around &&
         !std::equal(plain.begin(), plain.end(), tokens.begin() + static_cast<std::ptrdiff_t>(before)))
    ++before;
  const size_t behind = std::min(around - before, longest - 1);
  tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(longest - behind),
               tokens.end() - static_cast<std::ptrdiff_t>(behind));
  return tokens;
}

EmbeddingHead::EmbeddingHead(const LoadedModel& model) : model_(model) {
  std::vector<std::byte> scratch;
  for (const WeightUse& use : model.plan.dense) {
    const Tensor& tensor = model.weights.at(use.slot);
    Dense& dense = dense_.emplace_back();
    dense.rows = static_cast<size_t>(tensor.rows());
    dense.cols = static_cast<size_t>(tensor.cols());
    dense.weights.resize(dense.rows * dense.cols);
    for (size_t row = 0; row < dense.rows; ++row) {
      decode_row(tensor.dtype, tensor.rows_at(static_cast<int64_t>(row), 1, scratch),
                 dense.weights.data() + row * dense.cols, dense.cols);
    }
  }
}

Pooling EmbeddingHead::pooling() const {
  return model_.config.makes_text() ? Pooling::kMean : model_.config.embedding.pooling;
}

void EmbeddingHead::check_dimensions(int64_t dimensions) const {
  const int most = model_.config.embedding_width();
  if (dimensions == 0 || dimensions == most) return;
  if (dimensions > 0 && dimensions < most && !model_.config.makes_text()) return;
  fail({.code = ErrorCode::kUsage,
        .what = "the model's vectors do not have so many numbers",
        .where = model_.config.id,
        .expected = model_.config.makes_text() ? fmt::format("{}: it was not made for vectors that are cut", most)
                                               : fmt::format("1 to {}", most),
        .got = fmt::format("{}", dimensions)});
}

Embedding EmbeddingHead::finish(std::vector<double> row, int dimensions) const {
  for (const Dense& dense : dense_) {
    std::vector<double> next;
    for (size_t r = 0; r < dense.rows; ++r)
      next.push_back(dot(dense.weights.data() + r * dense.cols, row.data(), dense.cols));
    row = std::move(next);
  }
  const bool cut = dimensions > 0 && static_cast<size_t>(dimensions) < row.size();
  if (cut) row.resize(static_cast<size_t>(dimensions));
  double scale = 1;
  if (cut || model_.config.makes_text() || model_.config.embedding.normalize) {
    double square = 0;
    for (const double x : row) square += x * x;
    scale = square > 0 ? 1 / std::sqrt(square) : 0;
  }
  Embedding out;
  for (const double x : row) out.push_back(static_cast<float>(x * scale));
  return out;
}

EmbeddingRun::EmbeddingRun(const EmbeddingHead& head, std::vector<std::vector<int32_t>> texts, int dimensions,
                           int context, std::optional<AdapterUses> adapters)
    : head_(head),
      texts_(std::move(texts)),
      dimensions_(dimensions),
      context_(context),
      adapters_(std::move(adapters)) {
  const ModelConfig& config = head.model().config;
  width_ = static_cast<size_t>(config.hidden);
  const size_t row = sizeof(float) * static_cast<size_t>(config.makes_text() ? config.vocab : config.hidden);
  slice_ = std::clamp<size_t>(kLogitsBytes / row, 1, kSlice);
}

// Does the text run at once, and the rows of its norm are what the executor returns?
bool EmbeddingRun::whole(size_t text) const {
  const ModelConfig& config = head_.model().config;
  return !config.makes_text() && (!config.causal || texts_[text].size() <= slice_);
}

Sequence EmbeddingRun::start(KvCache& cache) const { return adapters_ ? cache.start(0, *adapters_) : cache.start(); }

bool EmbeddingRun::step(Executor& executor) {
  const size_t next = embeddings_.size();
  if (next == texts_.size()) return true;
  if (!(whole(next) ? step_whole(executor) : step_slice(executor))) return false;
  return embeddings_.size() == texts_.size();
}

// The cache has no room for the next text.
bool EmbeddingRun::no_room(Executor& executor) {
  sequence_ = Sequence();
  done_ = 0;
  if (executor.cache().held_pages() > 0) return false;  // the answers that run go first
  fail({.code = ErrorCode::kMemory,
        .what = "the cache has no room for the text",
        .got = fmt::format("{} tokens", texts_[embeddings_.size()].size())});
}

bool EmbeddingRun::step_whole(Executor& executor) {
  KvCache& cache = executor.cache();
  const size_t first = embeddings_.size();
  std::vector<Sequence> sequences;
  size_t tokens = 0;
  for (size_t t = first; t < texts_.size() && whole(t); ++t) {
    if (!sequences.empty() && tokens + texts_[t].size() > slice_) break;
    Sequence sequence = start(cache);
    if (!cache.reserve(sequence, static_cast<int>(texts_[t].size()))) break;
    sequences.push_back(std::move(sequence));
    tokens += texts_[t].size();
  }
  if (sequences.empty()) return no_room(executor);
  const bool last = head_.pooling() == Pooling::kLast;
  std::vector<BatchItem> items;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<int32_t>& text = texts_[first + i];
    items.push_back({&sequences[i], text, executor.phase_of_prompt(text.size()), last ? Logits::kLast : Logits::kAll});
  }
  const std::span<const float> rows = executor.run(items);
  // They are the executor's until its next call, which explaining a fault is.
  const std::vector<float> kept(rows.begin(), rows.end());
  sequences.clear();
  size_t at = 0;
  for (const BatchItem& item : items) {
    for (size_t r = 0; r < (last ? 1 : item.tokens.size()); ++r, at += width_)
      add_row(std::span(kept).subspan(at, width_));
    finish(executor);
  }
  return true;
}

bool EmbeddingRun::step_slice(Executor& executor) {
  KvCache& cache = executor.cache();
  const std::vector<int32_t>& tokens = texts_[embeddings_.size()];
  const bool tapped = head_.model().config.makes_text(), last = head_.pooling() == Pooling::kLast;
  if (done_ == 0) sequence_ = start(cache);
  // What is kept from one step to the next must leave room for any answer.
  const Sequence empty = cache.start();
  const bool sliced =
      cache.pages() >= cache.pages_for(empty, static_cast<int>(tokens.size())) + cache.pages_for(empty, context_);
  do {
    const size_t now = std::min(slice_, tokens.size() - done_);
    if (!cache.reserve(sequence_, static_cast<int>(now))) return no_room(executor);
    const bool ends = done_ + now == tokens.size();
    const Logits want = !last ? Logits::kAll : ends ? Logits::kLast : Logits::kNone;
    const BatchItem item{&sequence_, std::span(tokens).subspan(done_, now), executor.phase_of_prompt(tokens.size()),
                         want};
    if (tapped) {
      executor.set_tap_at(
          [&](const Step&, std::span<const float> data, int rows, int) {
            for (size_t r = 0; r < static_cast<size_t>(rows); ++r) add_row(data.subspan(r * width_, width_));
          },
          {"final_norm"});
    }
    try {
      const std::span<const float> rows = executor.run(std::span(&item, 1));
      for (size_t at = 0; !tapped && at < rows.size(); at += width_) add_row(rows.subspan(at, width_));
    } catch (...) {
      if (tapped) executor.set_tap(nullptr);
      throw;
    }
    if (tapped) executor.set_tap(nullptr);
    done_ += now;
  } while (!sliced && done_ < tokens.size());
  if (done_ == tokens.size()) finish(executor);
  return true;
}

void EmbeddingRun::add_row(std::span<const float> row) {
  if (rows_ == 0) pooled_.assign(width_, 0);
  ++rows_;
  for (size_t i = 0; i < width_; ++i) pooled_[i] += row[i];
}

void EmbeddingRun::finish(Executor& executor) {
  for (double& sum : pooled_) sum /= static_cast<double>(rows_);
  sequence_ = Sequence();
  done_ = rows_ = 0;
  Embedding embedding = head_.finish(pooled_, dimensions_);
  if (!all_finite(embedding.data(), embedding.size())) {
    const std::vector<int32_t>& tokens = texts_[embeddings_.size()];
    fail(explain_not_finite(executor, tokens, tokens.size(), adapters_));
  }
  embeddings_.push_back(std::move(embedding));
}

std::vector<Embedding> embed_texts(const EmbeddingHead& head, Executor& executor,
                                   std::vector<std::vector<int32_t>> texts, int dimensions) {
  EmbeddingRun run(head, std::move(texts), dimensions);
  while (!run.step(executor)) {
  }
  return run.embeddings();
}

}  // namespace doppler
