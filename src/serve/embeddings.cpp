// /v1/embeddings in OpenAI's words and /api/embed in Ollama's: the mean, over the tokens of a text, of what the final
// norm makes of them, at length 1.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "engine/not_finite.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

constexpr size_t kMostInputs = 2048;
// Tokens between two steps of the answers that run: the final norm is computed where logits are, so they are all there.
constexpr size_t kSlice = 256, kLogitsBytes = 64 << 20;

using Vector = std::vector<float>;

// Runs on the engine thread, a slice at a time, and must be destroyed there, since it holds a part of the cache.
class Embedder {
 public:
  Embedder(std::vector<std::vector<int32_t>> inputs, const ModelConfig& config, int context,
           std::vector<Vector>& vectors)
      : inputs_(std::move(inputs)),
        hidden_(static_cast<size_t>(config.hidden)),
        slice_(std::clamp<size_t>(kLogitsBytes / sizeof(float) / static_cast<size_t>(config.vocab), 1, kSlice)),
        context_(context),
        vectors_(vectors) {}

  // True: all is done.
  bool step(Executor& executor) {
    KvCache& cache = executor.cache();
    const std::vector<int32_t>& tokens = inputs_[vectors_.size()];
    const auto count = static_cast<int>(tokens.size());
    if (done_ == 0) {
      sequence_ = cache.start();
      sums_.assign(hidden_, 0);
    }
    // What is kept from one step to the next must leave room for any answer.
    const Sequence empty = cache.start();
    const bool sliced = cache.pages() >= cache.pages_for(empty, count) + cache.pages_for(empty, context_);
    do {
      const size_t now = std::min(slice_, tokens.size() - done_);
      if (!cache.reserve(sequence_, static_cast<int>(now))) {  // the answers that run go first
        sequence_ = Sequence();
        done_ = 0;
        if (cache.held_pages() > 0) return false;
        fail({.code = ErrorCode::kMemory,
              .what = "the cache has no room for the text",
              .got = fmt::format("{} tokens", count)});
      }
      run(executor, std::span(tokens).subspan(done_, now), executor.phase_of_prompt(tokens.size()));
      done_ += now;
    } while (!sliced && done_ < tokens.size());
    if (done_ == tokens.size()) finish(executor);
    return vectors_.size() == inputs_.size();
  }

 private:
  void run(Executor& executor, std::span<const int32_t> tokens, Phase phase) {
    executor.set_tap_at(
        [&](const Step&, std::span<const float> data, int rows, int) {
          for (size_t i = 0; i < static_cast<size_t>(rows) * hidden_; ++i) sums_[i % hidden_] += data[i];
        },
        {"final_norm"});
    const BatchItem item{&sequence_, tokens, phase, Logits::kAll};
    try {
      executor.run(std::span(&item, 1));
    } catch (...) {
      executor.set_tap(nullptr);
      throw;
    }
    executor.set_tap(nullptr);
  }
  void finish(Executor& executor) {
    double square = 0;
    for (const double sum : sums_) square += sum * sum;
    if (!std::isfinite(square)) {
      const std::vector<int32_t>& tokens = inputs_[vectors_.size()];
      sequence_ = Sequence();
      fail(explain_not_finite(executor, tokens, tokens.size()));
    }
    const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
    Vector& vector = vectors_.emplace_back();
    for (const double sum : sums_) vector.push_back(static_cast<float>(sum * scale));
    sequence_ = Sequence();
    done_ = 0;
  }

  const std::vector<std::vector<int32_t>> inputs_;
  const size_t hidden_, slice_;
  const int context_;
  Sequence sequence_;  // of the input that is being run
  size_t done_ = 0;    // of its tokens
  std::vector<double> sums_;
  std::vector<Vector>& vectors_;  // of the inputs before it
};

struct Input {
  std::string text;
  std::vector<int32_t> tokens;  // in place of a text
};

std::vector<Input> read_inputs(const Fields& fields) {
  static constexpr const char* kWanted = "a string, a list of token ids, or a list of those";
  const auto read = [&](const Json& json) {
    Input input;
    if (json.is_string()) {
      input.text = json.text();
    } else if (json.is_array()) {
      for (const Json& id : json) {
        if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
          fields.wrong("input", kWanted, id);
        input.tokens.push_back(id.get<int32_t>());
      }
    } else {
      fields.wrong("input", kWanted, json);
    }
    if (json.empty() || (json.is_string() && input.text.empty()))
      throw ApiError{.message = "'input' has a text without tokens", .param = "input"};
    return input;
  };
  const Json& json = fields.need("input");
  std::vector<Input> inputs;
  if (!json.is_array() || (!json.empty() && json[0].is_number())) {
    inputs.push_back(read(json));
  } else {
    for (const Json& one : json) inputs.push_back(read(one));
  }
  if (inputs.empty() || inputs.size() > kMostInputs)
    throw ApiError{.message = fmt::format("'input' must have 1 to {} texts", kMostInputs), .param = "input"};
  return inputs;
}

using OnVectors = std::function<void(const ServedModel& model, const std::vector<Vector>& vectors)>;

// `dimensions` 0: as many as there are.
void embed(const ContextPtr& context, const std::string& name, std::vector<Input> inputs, int64_t dimensions,
           OnVectors on_vectors) {
  with_model(context, name, [=](const std::shared_ptr<const ServedModel>& model) {
    const ModelConfig& config = model->model.config;
    if (dimensions != 0 && dimensions != config.hidden) {
      throw ApiError{
          .message = fmt::format("'dimensions' is not supported: this model's vectors have {}", config.hidden),
          .param = "dimensions",
          .code = "unsupported_parameter"};
    }
    std::vector<std::vector<int32_t>> tokens;
    size_t total = 0;
    for (const Input& input : inputs) {
      tokens.push_back(input.tokens.empty() ? model->model.need_tokenizer().encode(input.text, true) : input.tokens);
      if (tokens.back().size() > static_cast<size_t>(model->context)) {
        throw ApiError{.message = fmt::format("a text has {} tokens, and the context of this model {}",
                                              tokens.back().size(), model->context),
                       .param = "input",
                       .code = "context_length_exceeded"};
      }
      check_tokens(config, tokens.back(), 0, model->context);
      total += tokens.back().size();
    }
    context->usage.prompt = total;
    const auto vectors = std::make_shared<std::vector<Vector>>();
    const auto embedder = std::make_shared<Embedder>(std::move(tokens), config, model->context, *vectors);
    GenerateRequest request;
    request.client = context->client.name;
    const uint64_t number = context->engine.submit(
        model, std::move(request),
        [context, model, vectors, on_vectors](Piece piece) {
          post(context, [=, failure = std::move(piece.failure)] {
            if (!failure.empty()) throw ApiError{.status = 500, .message = failure, .type = "server_error"};
            context->finish = "stop";
            on_vectors(*model, *vectors);
          });
        },
        [embedder, vectors, reply = context->reply](Executor& executor) {
          return reply->gone() || embedder->step(executor);
        });
    if (number == 0) {
      throw ApiError{
          .status = 429, .message = "too many requests are waiting", .code = "queue_full", .type = "rate_limit_error"};
    }
  });
}

std::string base64(const Vector& vector) {
  static_assert(std::endian::native == std::endian::little);
  const size_t bytes = vector.size() * sizeof(float);
  std::string text(4 * ((bytes + 2) / 3) + 1, '\0');  // with the zero that OpenSSL ends it with
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), reinterpret_cast<const unsigned char*>(vector.data()),
                  static_cast<int>(bytes));
  text.pop_back();
  return text;
}

}  // namespace

void openai_embeddings(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  const std::string format = fields.string("encoding_format", "float");
  if (format != "float" && format != "base64") fields.wrong("encoding_format", "float or base64", Json(format));
  embed(context, fields.string("model", ""), read_inputs(fields), fields.integer("dimensions", 0, 1, 1 << 30),
        [context, format](const ServedModel& model, const std::vector<Vector>& vectors) {
          Json data = Json::array();
          for (size_t i = 0; i < vectors.size(); ++i) {
            data.push_back({{"object", "embedding"},
                            {"index", i},
                            {"embedding", format == "float" ? Json(vectors[i]) : Json(base64(vectors[i]))}});
          }
          const size_t tokens = context->usage.prompt;
          send_json(*context->reply, {{"object", "list"},
                                      {"data", std::move(data)},
                                      {"model", model.name},
                                      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
        });
}

void ollama_embed(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  embed(context, fields.need_string("model"), read_inputs(fields), fields.integer("dimensions", 0, 1, 1 << 30),
        [context](const ServedModel& model, const std::vector<Vector>& vectors) {
          Json embeddings = Json::array();
          for (const Vector& vector : vectors) embeddings.push_back(vector);
          send_json(*context->reply, {{"model", model.name},
                                      {"embeddings", std::move(embeddings)},
                                      {"total_duration", 0},
                                      {"load_duration", 0},
                                      {"prompt_eval_count", context->usage.prompt}});
        });
}

}  // namespace doppler::serve
