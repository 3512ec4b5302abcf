#include "serve/server.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/version.h"
#include "serve/api.h"
#include "serve/log_writer.h"
#include "serve/page.h"
#include "serve/watch.h"

namespace doppler::serve {
namespace {

bool is_local(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

class Server {
 public:
  explicit Server(const ServeOptions& options);

  HttpHandlers handlers();
  EngineThread& engine() { return engine_; }
  void ready() { ready_ = true; }
  EngineGauges gauges() const { return metrics_.gauges(); }
  void drain();

 private:
  std::optional<HttpAnswer> check(const HttpRequest& head);
  HttpAnswer refuse(const HttpRequest& head, const ApiError& error, Headers headers = {});
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void route(const ContextPtr& context);
  void log_request(const HttpRequest& request, int status, const Context* context) noexcept;
  void log_event(const EngineEvent& event) noexcept;
  void log_line(const Json& line);
  Json model_json(const std::string& name) const;

  const ServeOptions options_;
  Metrics metrics_;
  LogWriter log_;
  std::atomic<bool> draining_{false}, ready_{false};
  std::chrono::steady_clock::time_point cut_at_{};  // set before draining_
  const int64_t started_ = unix_time();
  EngineThread engine_;
};

EngineOptions engine_options(EngineOptions options, bool watched, std::function<void(const EngineEvent&)> on_event) {
  options.list_requests = watched;
  options.on_event = [before = std::move(options.on_event), then = std::move(on_event)](const EngineEvent& event) {
    then(event);
    if (before) before(event);
  };
  return options;
}

Server::Server(const ServeOptions& options)
    : options_(options),
      log_(options.log_file,
           [json = options.log_json](uint64_t lines) {
             return json ? Json{{"time", iso_time()}, {"event", "dropped"}, {"lines", lines}}.dump()
                         : fmt::format("{} event=dropped lines={}", iso_time(), lines);
           }),
      engine_(options.models,
              engine_options(options.engine, options.watch_file >= 0,
                             [this](const EngineEvent& event) { log_event(event); }),
              metrics_) {}

HttpHandlers Server::handlers() {
  return {.check = [this](const HttpRequest& head) { return check(head); },
          .handle = [this](HttpRequest request,
                           std::shared_ptr<HttpReply> reply) { handle(std::move(request), std::move(reply)); },
          .refuse =
              [this](const HttpRequest& head, int status, std::string_view sentence) {
                return refuse(head, {.status = status, .message = std::string(sentence)});
              }};
}

void Server::drain() {
  cut_at_ = std::chrono::steady_clock::now() + options_.drain;
  draining_ = true;
}

// Everything that is looked at before a body is read.
std::optional<HttpAnswer> Server::check(const HttpRequest& head) {
  Headers headers;
  try {
    headers = cors_headers(options_.access, head);
    admit(options_.access, head);
    if (draining_ && head.method == "POST")
      throw ApiError{.status = 503, .message = "the server is going down", .type = "server_error"};
    return std::nullopt;
  } catch (...) {
    return refuse(head, current_error(), std::move(headers));
  }
}

HttpAnswer Server::refuse(const HttpRequest& head, const ApiError& error, Headers headers) {
  if (error.status == 503) headers.emplace_back("retry-after", "2");
  log_request(head, error.status, nullptr);
  return {.status = error.status, .body = error_body(head.path, error).dump(), .headers = std::move(headers)};
}

void Server::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  auto context =
      std::shared_ptr<Context>(new Context{std::move(request), std::move(reply), engine_, options_.log_text});
  context->on_end = [this](const Context& ended) {
    log_request(ended.request, ended.reply->gone() ? 499 : ended.reply->status(), &ended);
  };
  try {
    for (auto& [name, value] : cors_headers(options_.access, context->request)) context->reply->add_header(name, value);
    context->client = admit(options_.access, context->request);
    route(context);
  } catch (...) {
    send_error(*context, current_error());
  }
}

Json Server::model_json(const std::string& name) const {
  Json json = {{"id", name}, {"object", "model"}, {"created", started_}, {"owned_by", "doppler"}};
  const NamedModel named = engine_.find_named(name);
  if (named.adapter >= 0) json["parent"] = named.model->name;
  return json;
}

// As llama.cpp's server has it: the adapters by the numbers that "lora" names them by, and their scales where only the
// model's name chooses.
Json adapter_list(const ModelSpec& model) {
  Json list = Json::array();
  for (const NamedAdapter& adapter : model.adapters) {
    const AdapterSpec& spec = adapter.spec;
    list.push_back({{"id", list.size()}, {"path", spec.path.string()}, {"scale", spec.scale}});
  }
  return list;
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
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > std::numeric_limits<int32_t>::max())
      fields.wrong("tokens", "a list of token ids", id);
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
  if (path == "/metrics" && request.method != "POST") {
    std::vector<std::string> names;
    for (const ModelSpec& model : engine_.models()) names.push_back(model.name);
    return reply.send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.print(names, log_.dropped()));
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
  if (path == "/health") return send_json(reply, {{"status", ready_ ? "ok" : "loading"}});
  if (path == "/ready") {
    if (!ready_) throw ApiError{.status = 503, .message = "the model is being loaded", .type = "server_error"};
    return send_json(reply, {{"status", "ok"}});
  }
  if (path == "/api/version") return send_json(reply, {{"version", kVersion}});
  if (path == "/api/tags") return send_json(reply, ollama_tags(engine_));
  if (path == "/lora-adapters") return send_json(reply, adapter_list(engine_.models().front()));
  if (path == "/v1/models") {
    Json list = Json::array();
    for (const std::string& name : engine_.names()) list.push_back(model_json(name));
    return send_json(reply, {{"object", "list"}, {"data", list}});
  }
  if (path.starts_with("/v1/models/")) {
    if (engine_.find_named(path.substr(11)).model) return send_json(reply, model_json(path.substr(11)));
    throw ApiError{.status = 404,
                   .message = fmt::format("the model '{}' does not exist", path.substr(11)),
                   .param = "model",
                   .code = "model_not_found"};
  }
  throw ApiError{.status = 404, .message = fmt::format("there is no {}", path)};
}

// One line per request, when the last who works for it lets go, or when it is refused (then without a context).
void Server::log_request(const HttpRequest& request, int status, const Context* context) noexcept {
  try {
    metrics_.answered(status);
    const bool asked = context && !context->model.empty();
    if (!asked && status < 400 && (request.path == "/health" || request.path == "/ready" || request.path == "/metrics"))
      return;
    const auto now = std::chrono::steady_clock::now();
    const auto tenths = [](double value) { return std::round(value * 10) / 10; };
    Json line = {{"time", iso_time()},
                 {"id", request.id},
                 {"client", request.client},
                 {"method", request.method},
                 {"path", request.path},
                 {"status", status},
                 {"ms", tenths(std::chrono::duration<double, std::milli>(now - request.arrived).count())}};
    if (context && context->client.key > 0 && options_.access.keys.size() > 1) line["key"] = context->client.key;
    if (asked) {
      const Timing& timing = context->usage.timing;
      const bool cut = status == 499 && draining_ && now >= cut_at_;
      line["model"] = context->model;
      line["prompt_tokens"] = context->usage.prompt;
      line["cached_tokens"] = context->usage.cached;
      line["completion_tokens"] = context->usage.completion;
      line["queue_ms"] = tenths(timing.queued_ms);
      line["first_token_ms"] = tenths(timing.first_token_ms);
      line["tok_s"] = tenths(timing.decode_tok_s());
      line["finish"] = cut ? "cut" : context->finish;
    }
    if (context && options_.log_text) {
      line["body"] = request.body;
      line["text"] = context->text;
    }
    log_line(line);
  } catch (...) {  // no memory for a line
  }
}

void Server::log_event(const EngineEvent& event) noexcept {
  try {
    log_line({{"time", iso_time()}, {"event", event.what}, {"model", event.model}, {"detail", event.detail}});
  } catch (...) {
  }
}

void Server::log_line(const Json& line) {
  if (options_.log_file < 0) return;
  if (options_.log_json) return log_.line(line.dump());
  std::string text;
  for (const auto& [key, value] : line.items()) {
    const bool plain = value.is_string() && key != "body" && key != "text" && key != "detail";
    text += text.empty() ? value.text() : fmt::format(" {}={}", key, plain ? value.text() : value.dump());
  }
  log_.line(text);
}

}  // namespace

void serve(const ServeOptions& options, const ServeEvents& events) {
  if (!is_local(options.http.address) && options.access.keys.empty() && !options.no_auth) {
    fail({.code = ErrorCode::kUsage,
          .what = "whoever reaches this address could use the server",
          .where = options.http.address,
          .todo = "Give an --api-key, or say --no-auth if that is meant"});
  }
  Server server(options);
  HttpServer http(options.http, server.handlers());
  if (events.listening) events.listening(http.port());
  std::optional<Watch> watch;  // begins below what is said when the server is ready
  std::string failure;         // set before failed
  std::atomic<bool> failed = false;
  server.engine().with_model(options.models.front().name, [&](const auto& model, const std::string& why) {
    failure = why;
    failed = !model;
    if (!model) return;
    server.ready();
    if (events.ready) events.ready(http.port());
    if (options.watch_file >= 0) watch.emplace(options.watch_file, [&] { return server.gauges(); });
  });
  http.run([&] { return failed || events.stopping(); }, [&] { server.drain(); }, options.drain);
  server.engine().stop();  // before what it would post to goes
  if (failed) fail({.code = ErrorCode::kUsage, .what = failure, .where = options.models.front().path.string()});
}

}  // namespace doppler::serve
