// Vectors of texts: the rows that the final norm makes of a text's tokens become one (their mean, or the last), which
// goes through the model's dense layers and gets length 1. A model that makes text has vectors, too: the mean.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "model/executor.h"

namespace doppler {

using Embedding = std::vector<float>;

// The tokens of a text behind the prompt of that name, empty: the model's default one, where it has one. What is longer
// than `longest` tokens fails, or where it is to be cut, keeps the tokens that the tokenizer puts around a text.
struct EmbedText {
  std::string prompt_name = {};
  int longest = 0;
  bool truncate = false;
};
std::vector<int32_t> tokens_to_embed(const LoadedModel& model, const std::string& text, const EmbedText& options);

// What is done with the one row. Holds the dense layers as floats, so it is made once.
class EmbeddingHead {
 public:
  explicit EmbeddingHead(const LoadedModel& model);  // which must outlive it

  const LoadedModel& model() const { return model_; }
  Pooling pooling() const;
  // Fails unless vectors may have so many numbers; 0: as many as there are.
  void check_dimensions(int64_t dimensions) const;
  // The first `dimensions` numbers, at length 1 again. Not finite where the row was not.
  Embedding finish(std::vector<double> pooled, int dimensions) const;

 private:
  struct Dense {
    size_t rows = 0, cols = 0;
    std::vector<float> weights;
  };
  const LoadedModel& model_;
  std::vector<Dense> dense_;
};

// Runs texts, a few at a time, so that whoever shares the executor has its turns between. A text's vector has the same
// bits alone and in company: texts are items of a batch, and nothing is found again. Must go before the executor.
class EmbeddingRun {
 public:
  // `context`: tokens that must stay free for an answer, where answers share the cache.
  // `adapters`: of the executor's; where nobody says, its standard ones.
  EmbeddingRun(const EmbeddingHead& head, std::vector<std::vector<int32_t>> texts, int dimensions, int context = 0,
               std::optional<AdapterUses> adapters = std::nullopt);

  // Runs some; true: all are done. False also where the cache is held by others, whose answers go first.
  bool step(Executor& executor);
  // Of the texts that are done, in their order.
  const std::vector<Embedding>& embeddings() const { return embeddings_; }

 private:
  bool whole(size_t text) const;
  Sequence start(KvCache& cache) const;
  bool no_room(Executor& executor);
  bool step_whole(Executor& executor);
  bool step_slice(Executor& executor);
  void add_row(std::span<const float> row);
  void finish(Executor& executor);

  const EmbeddingHead& head_;
  const std::vector<std::vector<int32_t>> texts_;
  const int dimensions_, context_;
  const std::optional<AdapterUses> adapters_;
  size_t width_ = 0, slice_ = 0;
  Sequence sequence_;  // of a text that is run slice by slice
  size_t done_ = 0;    // of its tokens
  std::vector<double> pooled_;
  size_t rows_ = 0;  // in it
  std::vector<Embedding> embeddings_;
};

// All texts, on an executor that nobody else uses.
std::vector<Embedding> embed_texts(const EmbeddingHead& head, Executor& executor,
                                   std::vector<std::vector<int32_t>> texts, int dimensions);

}  // namespace doppler
