// /v1/embeddings in OpenAI's words and /api/embed in Ollama's.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <bit>
#include <climits>

#include "base/error.h"
#include "engine/embedding.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

constexpr size_t kMostInputs = 2048;

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

// What a request says of all its texts.
struct Wishes {
  int64_t dimensions = 0;  // 0: as many as there are
  std::string prompt_name = {};
  bool truncate = false;
};
Wishes read_wishes(const Fields& fields) {
  return {fields.integer("dimensions", 0, 1, 1 << 30), fields.string("prompt_name", ""),
          fields.boolean("truncate", false)};
}

// What the engine finds wrong with a field is the request's fault.
template <class Work>
auto blaming(const char* field, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Failure& failure) {
    throw ApiError{.message = failure.what(), .param = field, .code = "unsupported_parameter"};
  }
}

std::vector<int32_t> tokens_of(const ServedModel& model, const Input& input, const Wishes& wishes) {
  const int longest = model.context;
  std::vector<int32_t> tokens = input.tokens;
  if (tokens.empty()) {
    const EmbedText options{wishes.prompt_name, wishes.truncate ? longest : INT_MAX, wishes.truncate};
    tokens = blaming("prompt_name", [&] { return tokens_to_embed(model.model, input.text, options); });
  } else if (wishes.truncate && tokens.size() > static_cast<size_t>(longest)) {
    tokens.resize(static_cast<size_t>(longest));
  }
  if (tokens.size() > static_cast<size_t>(longest)) {
    throw ApiError{
        .message = fmt::format("a text has {} tokens, and the context of this model {}", tokens.size(), longest),
        .param = "input",
        .code = "context_length_exceeded"};
  }
  check_tokens(model.model.config, tokens, 0, longest);
  return tokens;
}

using OnVectors = std::function<void(const std::vector<Embedding>& vectors)>;

void embed(const ContextPtr& context, const std::string& name, std::vector<Input> inputs, Wishes wishes,
           OnVectors on_vectors) {
  with_model(context, name, [=](const std::shared_ptr<const ServedModel>& model) {
    blaming("dimensions", [&] { model->embedding->check_dimensions(wishes.dimensions); });
    std::vector<std::vector<int32_t>> tokens;
    size_t total = 0;
    for (const Input& input : inputs) {
      tokens.push_back(tokens_of(*model, input, wishes));
      total += tokens.back().size();
    }
    context->usage.prompt = total;
    const auto vectors = std::make_shared<std::vector<Embedding>>();
    // Holds a part of the cache, so it must go on the engine thread: nobody but its work has it.
    auto run = std::make_shared<EmbeddingRun>(*model->embedding, std::move(tokens), static_cast<int>(wishes.dimensions),
                                              model->context, context->adapters);
    GenerateRequest request;
    request.client = context->client.name;
    const uint64_t number = context->engine.submit(
        model, std::move(request),
        [context, vectors, on_vectors](Piece piece) {
          post(context, [=, failure = std::move(piece.failure)] {
            if (!failure.empty()) throw ApiError{.status = 500, .message = failure, .type = "server_error"};
            context->finish = "stop";
            on_vectors(*vectors);
          });
        },
        [run = std::move(run), vectors, reply = context->reply](Executor& executor) {
          if (reply->gone()) return true;
          if (!run->step(executor)) return false;
          *vectors = run->embeddings();
          return true;
        });
    if (number == 0) {
      throw ApiError{
          .status = 429, .message = "too many requests are waiting", .code = "queue_full", .type = "rate_limit_error"};
    }
  });
}

std::string base64(const Embedding& vector) {
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
  embed(context, fields.string("model", ""), read_inputs(fields), read_wishes(fields),
        [context, format](const std::vector<Embedding>& vectors) {
          Json data = Json::array();
          for (size_t i = 0; i < vectors.size(); ++i) {
            data.push_back({{"object", "embedding"},
                            {"index", i},
                            {"embedding", format == "float" ? Json(vectors[i]) : Json(base64(vectors[i]))}});
          }
          const size_t tokens = context->usage.prompt;
          send_json(*context->reply, {{"object", "list"},
                                      {"data", std::move(data)},
                                      {"model", context->model},
                                      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
        });
}

void ollama_embed(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  embed(context, fields.need_string("model"), read_inputs(fields), read_wishes(fields),
        [context](const std::vector<Embedding>& vectors) {
          Json embeddings = Json::array();
          for (const Embedding& vector : vectors) embeddings.push_back(vector);
          send_json(*context->reply, {{"model", context->model},
                                      {"embeddings", std::move(embeddings)},
                                      {"total_duration", 0},
                                      {"load_duration", 0},
                                      {"prompt_eval_count", context->usage.prompt}});
        });
}

}  // namespace doppler::serve
