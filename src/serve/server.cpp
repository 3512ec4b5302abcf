#include "serve/server.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/version.h"
#include "serve/api.h"
#include "serve/page.h"

namespace doppler::serve {
namespace {

bool is_local(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool same_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// "name:port", "[::1]:port" → the name.
std::string host_name(const std::string& host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_address(const std::string& host) {
  return host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string::npos;
}

class Server {
 public:
  explicit Server(const ServeOptions& options) : options_(options), engine_(options.models, options.engine, metrics_) {}

  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  EngineThread& engine() { return engine_; }
  void drain() { draining_ = true; }

 private:
  void check_access(const HttpRequest& request, HttpReply& reply) const;
  void route(const ContextPtr& context);
  void log(const Context& context);
  Json model_json(const ModelSpec& model) const;

  const ServeOptions options_;
  Metrics metrics_;
  EngineThread engine_;
  std::atomic<bool> draining_{false};
  const int64_t started_ = unix_time();
};

// Everything that is looked at before a body is read.
void Server::check_access(const HttpRequest& request, HttpReply& reply) const {
  const std::string host = host_name(request.header("host")), origin = request.header("origin");
  const auto& names = options_.allowed_hosts;
  // A page whose name was pointed at this machine asks under its own name; without a key that is all that tells it.
  if (options_.api_key.empty() && !host.empty() && host != "localhost" && !is_address(host) &&
      std::find(names.begin(), names.end(), host) == names.end()) {
    throw ApiError{.status = 403,
                   .message = fmt::format("the server is not known as '{}'; --allow-host adds a name", host),
                   .type = "permission_error"};
  }
  if (!origin.empty() && origin != "http://" + request.header("host") &&
      origin != "https://" + request.header("host")) {
    const auto& origins = options_.cors;
    const bool all = std::find(origins.begin(), origins.end(), "*") != origins.end();
    if (!all && std::find(origins.begin(), origins.end(), origin) == origins.end()) {
      throw ApiError{.status = 403,
                     .message = fmt::format("pages of {} may not ask this server; --cors allows an origin", origin),
                     .type = "permission_error"};
    }
    reply.add_header("access-control-allow-origin", all ? "*" : origin);
    if (!all) reply.add_header("vary", "origin");
    reply.add_header("access-control-expose-headers", "x-request-id");
  }
  const bool open =
      request.path == "/health" || request.path == "/ready" || request.path == "/" || request.method == "OPTIONS";
  if (options_.api_key.empty() || open) return;
  std::string key = request.header("x-api-key");
  if (const std::string bearer = request.header("authorization"); bearer.size() > 7 && bearer.starts_with("Bearer "))
    key = bearer.substr(7);
  if (!same_secret(key, options_.api_key)) {
    throw ApiError{.status = 401,
                   .message = key.empty() ? "an API key is needed, in Authorization: Bearer or in x-api-key"
                                          : "the API key is not the right one",
                   .code = "invalid_api_key",
                   .type = "authentication_error"};
  }
}

void Server::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  auto context =
      std::shared_ptr<Context>(new Context{std::move(request), std::move(reply), engine_, options_.log_text});
  context->on_end = [this](const Context& ended) { log(ended); };
  try {
    check_access(context->request, *context->reply);
    route(context);
  } catch (...) {
    send_error(*context, current_error());
  }
}

Json Server::model_json(const ModelSpec& model) const {
  return {{"id", model.name}, {"object", "model"}, {"created", started_}, {"owned_by", "doppler"}};
}

void tokenize(const ContextPtr& context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask;
  ask.chat = fields.find("messages") != nullptr;
  if (ask.chat) ask.messages = openai_messages(*fields.array("messages"), "messages");
  ask.prompt = fields.string(fields.find("content") ? "content" : "prompt", "");
  const bool special = fields.boolean("add_special_tokens", fields.boolean("add_special", true));
  with_model(
      context, fields.string("model", ""), [context, ask, special](const std::shared_ptr<const ServedModel>& model) {
        const std::vector<int32_t> tokens =
            ask.chat ? prompt_tokens(*model, ask) : model->model.need_tokenizer().encode(ask.prompt, special);
        send_json(*context->reply, {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model->context}});
      });
}

void detokenize(const ContextPtr& context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  fields.need("tokens");
  std::vector<int32_t> tokens;
  for (const Json& id : *fields.array("tokens")) {
    if (!id.is_number_integer()) fields.wrong("tokens", "a list of token ids", id);
    tokens.push_back(id.get<int32_t>());
  }
  with_model(context, fields.string("model", ""), [context, tokens](const std::shared_ptr<const ServedModel>& model) {
    const std::string text = model->model.need_tokenizer().decode(tokens, false);
    send_json(*context->reply, {{"prompt", text}, {"content", text}});
  });
}

void Server::route(const ContextPtr& context) {
  const HttpRequest& request = context->request;
  HttpReply& reply = *context->reply;
  const std::string& path = request.path;
  if (request.method == "OPTIONS") {
    return reply.send(204, "", "",
                      {{"access-control-allow-methods", "GET, POST, OPTIONS"},
                       {"access-control-allow-headers", request.header("access-control-request-headers").empty()
                                                            ? "*"
                                                            : request.header("access-control-request-headers")},
                       {"access-control-max-age", "600"}});
  }
  if (draining_) throw ApiError{.status = 503, .message = "the server is going down", .type = "server_error"};
  using Route = void (*)(ContextPtr);
  static const std::map<std::string, Route> posts = {{"/v1/chat/completions", openai_chat},
                                                     {"/v1/completions", openai_completions},
                                                     {"/v1/responses", openai_responses},
                                                     {"/v1/embeddings", openai_embeddings},
                                                     {"/v1/messages", anthropic_messages},
                                                     {"/v1/messages/count_tokens", anthropic_count_tokens},
                                                     {"/api/chat", ollama_chat},
                                                     {"/api/generate", ollama_generate},
                                                     {"/api/embed", ollama_embed},
                                                     {"/api/show", ollama_show},
                                                     {"/tokenize", [](ContextPtr c) { tokenize(c); }},
                                                     {"/detokenize", [](ContextPtr c) { detokenize(c); }}};
  if (const auto post = posts.find(path); post != posts.end()) {
    if (request.method != "POST") throw ApiError{.status = 405, .message = path + " takes POST"};
    return post->second(context);
  }
  if (request.method != "GET" && request.method != "HEAD")
    throw ApiError{.status = 404, .message = fmt::format("there is no {} {}", request.method, path)};
  if (path == "/") return reply.send(200, "text/html; charset=utf-8", std::string(chat_page()));
  if (path == "/health" || path == "/ready") return send_json(reply, {{"status", "ok"}});
  if (path == "/api/version") return send_json(reply, {{"version", kVersion}});
  if (path == "/api/tags") return send_json(reply, ollama_tags(engine_));
  if (path == "/metrics") {
    std::vector<std::string> names;
    for (const ModelSpec& model : engine_.models()) names.push_back(model.name);
    return reply.send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.print(names));
  }
  if (path == "/v1/models") {
    Json list = Json::array();
    for (const ModelSpec& model : engine_.models()) list.push_back(model_json(model));
    return send_json(reply, {{"object", "list"}, {"data", list}});
  }
  if (path.starts_with("/v1/models/")) {
    if (const ModelSpec* model = engine_.find(path.substr(11))) return send_json(reply, model_json(*model));
    throw ApiError{.status = 404,
                   .message = fmt::format("the model '{}' does not exist", path.substr(11)),
                   .param = "model",
                   .code = "model_not_found"};
  }
  throw ApiError{.status = 404, .message = fmt::format("there is no {}", path)};
}

// One line per request, when the last who works for it lets go.
void Server::log(const Context& context) {
  const HttpRequest& request = context.request;
  const int status = context.reply->gone() ? 499 : context.reply->status();
  metrics_.answered(status);
  const bool asked = !context.model.empty();
  if (!asked && status < 400 && (request.path == "/health" || request.path == "/ready" || request.path == "/metrics"))
    return;
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - request.arrived).count();
  const Timing& timing = context.usage.timing;
  Json line = {{"time", iso_time()},   {"id", request.id}, {"client", request.client},      {"method", request.method},
               {"path", request.path}, {"status", status}, {"ms", std::round(ms * 10) / 10}};
  if (asked) {
    line["model"] = context.model;
    line["prompt_tokens"] = context.usage.prompt;
    line["cached_tokens"] = context.usage.cached;
    line["completion_tokens"] = context.usage.completion;
    line["queue_ms"] = std::round(timing.queued_ms * 10) / 10;
    line["first_token_ms"] = std::round(timing.first_token_ms * 10) / 10;
    line["tok_s"] = std::round(timing.decode_tok_s() * 10) / 10;
    line["finish"] = context.finish;
  }
  if (options_.log_text) {
    line["body"] = request.body;
    line["text"] = context.text;
  }
  if (options_.log_json) {
    fmt::print(stderr, "{}\n", line.dump());
    return;
  }
  std::string text;
  for (const auto& [key, value] : line.items()) {
    text += (text.empty() ? "" : " ") +
            (key == "time"
                 ? value.text()
                 : key + "=" + (value.is_string() && key != "body" && key != "text" ? value.text() : value.dump()));
  }
  fmt::print(stderr, "{}\n", text);
}

}  // namespace

void serve(const ServeOptions& options, const std::function<bool()>& stopping,
           const std::function<void(uint16_t port)>& listening) {
  if (!is_local(options.http.address) && options.api_key.empty() && !options.no_auth) {
    fail({.code = ErrorCode::kUsage,
          .what = "whoever reaches this address could use the server",
          .where = options.http.address,
          .todo = "Give an --api-key, or say --no-auth if that is meant"});
  }
  Server server(options);
  HttpServer http(
      options.http,
      [&](HttpRequest request, std::shared_ptr<HttpReply> reply) {
        server.handle(std::move(request), std::move(reply));
      },
      [](int status, std::string_view sentence) {
        return openai_error({.status = status, .message = std::string(sentence)}).dump();
      });
  std::promise<std::string> loaded;
  server.engine().with_model(options.models.front().name,
                             [&](const auto&, const std::string& failure) { loaded.set_value(failure); });
  if (const std::string failure = loaded.get_future().get(); !failure.empty()) {
    fail({.code = ErrorCode::kUsage, .what = failure, .where = options.models.front().path.string()});
  }
  listening(http.port());
  http.run(
      stopping, [&] { server.drain(); }, options.drain);
  server.engine().stop();  // before what it would post to goes
}

}  // namespace doppler::serve
