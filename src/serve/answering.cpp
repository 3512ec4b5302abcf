// From a question to an answer on the wire: model, prompt, engine, parser.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <new>
#include <random>

#include "base/error.h"
#include "serve/answer_grammar.h"
#include "serve/api.h"

namespace doppler::serve {

// ---- fields

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object())
    throw ApiError{.message = fmt::format("{} must be an object", path_.empty() ? "the body" : path_)};
}

void Fields::wrong(const std::string& name, const std::string& expected, const Json& got) const {
  throw ApiError{.message = fmt::format("'{}' must be {}, not {}", path(name), expected, brief(got)),
                 .param = path(name)};
}

const Json* Fields::find(const std::string& name) const { return doppler::find(object_, name); }

const Json& Fields::need(const std::string& name) const {
  const Json* value = find(name);
  if (!value) throw ApiError{.message = fmt::format("'{}' is missing", path(name)), .param = path(name)};
  return *value;
}

std::string Fields::string(const std::string& name, std::string otherwise) const {
  const Json* value = find(name);
  if (value && !value->is_string()) wrong(name, "a string", *value);
  return value ? value->text() : otherwise;
}

std::string Fields::need_string(const std::string& name) const {
  need(name);
  return string(name, "");
}

bool Fields::boolean(const std::string& name, bool otherwise) const {
  const Json* value = find(name);
  if (value && !value->is_boolean()) wrong(name, "true or false", *value);
  return value ? value->get<bool>() : otherwise;
}

double Fields::number(const std::string& name, double otherwise, double least, double most) const {
  const Json* value = find(name);
  if (!value) return otherwise;
  if (!value->is_number()) wrong(name, "a number", *value);
  const double number = value->get<double>();
  if (!(number >= least && number <= most)) wrong(name, fmt::format("{} to {}", least, most), *value);
  return number;
}

int64_t Fields::integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const {
  const Json* value = find(name);
  if (!value) return otherwise;
  const bool whole =
      value->is_number_integer() || (value->is_number() && value->get<double>() == std::floor(value->get<double>()));
  if (!whole) wrong(name, "a whole number", *value);
  const double number = value->get<double>();
  if (number < static_cast<double>(least) || number > static_cast<double>(most)) {
    wrong(name, fmt::format("{} to {}", least, most), *value);
  }
  return value->is_number_integer() ? value->get<int64_t>() : static_cast<int64_t>(number);
}

std::vector<std::string> Fields::strings(const std::string& name) const {
  const Json* value = find(name);
  if (!value) return {};
  std::vector<std::string> all;
  const auto add = [&](const Json& text) {
    if (!text.is_string() || text.text().empty()) wrong(name, "a string that is not empty, or a list of them", text);
    all.push_back(text.text());
  };
  if (!value->is_array()) {
    add(*value);
  } else {
    for (const Json& text : *value) add(text);
  }
  return all;
}

const Json* Fields::array(const std::string& name) const {
  const Json* value = find(name);
  if (value && !value->is_array()) wrong(name, "an array", *value);
  return value;
}

void Fields::refuse(const std::string& name, const std::string& why) const {
  throw ApiError{.message = fmt::format("'{}' is not supported: {}", path(name), why),
                 .param = path(name),
                 .code = "unsupported_parameter"};
}

// ---- small things

std::string random_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}", prefix, random());
}

int64_t unix_time() { return static_cast<int64_t>(std::time(nullptr)); }

std::string iso_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

void send_json(HttpReply& reply, const Json& json, int status) { reply.send(status, "application/json", json.dump()); }

void send_error(Context& context, const ApiError& error) {
  context.finish = context.finish.empty() ? "error" : context.finish;
  Headers headers;
  if (error.status == 429) headers = {{"retry-after", "1"}};
  if (error.status == 503) headers = {{"retry-after", "2"}};
  context.reply->send(error.status, "application/json", error_body(context.request.path, error).dump(), headers);
}

ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Failure& failure) {
    switch (failure.error.code) {
      case ErrorCode::kUsage:
      case ErrorCode::kFormat:
      case ErrorCode::kUnsupported: return {.message = failure.what()};
      case ErrorCode::kMemory: return {.status = 503, .message = failure.what(), .type = "server_error"};
      case ErrorCode::kFile:
      case ErrorCode::kDevice:
      case ErrorCode::kInternal: break;
    }
    return {.status = 500, .message = failure.what(), .type = "server_error"};
  } catch (const std::bad_alloc&) {
    return {.status = 503, .message = "there is not enough memory to answer", .type = "server_error"};
  } catch (const std::exception& error) {
    return {.status = 500, .message = error.what(), .type = "server_error"};
  } catch (...) {
    return {.status = 500, .message = "something unknown went wrong", .type = "server_error"};
  }
}

Json openai_error(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", error.param.empty() ? Json() : Json(error.param)},
            {"code", error.code.empty() ? Json() : Json(error.code)}}}};
}

Json error_body(const std::string& path, const ApiError& error) {
  if (path.starts_with("/api/")) return {{"error", error.message}};
  if (path.starts_with("/v1/messages")) {
    const char* type = error.status == 401   ? "authentication_error"
                       : error.status == 403 ? "permission_error"
                       : error.status == 404 ? "not_found_error"
                       : error.status == 413 ? "request_too_large"
                       : error.status == 429 ? "rate_limit_error"
                       : error.status == 503 ? "overloaded_error"
                       : error.status >= 500 ? "api_error"
                                             : "invalid_request_error";
    return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
  }
  return openai_error(error);
}

void read_sampling(const Fields& fields, Ask& ask) {
  const auto number = [&](const char* name, std::optional<double>& to, double least, double most) {
    if (fields.find(name)) to = fields.number(name, 0, least, most);
  };
  read_adapters(fields, ask);
  number("temperature", ask.temperature, 0, 100);
  number("top_p", ask.top_p, 0, 1);
  number("min_p", ask.min_p, 0, 1);
  number("repeat_penalty", ask.repeat_penalty, 0.01, 100);
  number("repetition_penalty", ask.repeat_penalty, 0.01, 100);
  if (fields.find("top_k")) ask.top_k = std::max<int64_t>(0, fields.integer("top_k", 0, -1, 1 << 30));
  if (fields.find("seed"))
    ask.seed = fields.integer("seed", 0, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  ask.options.edits.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", 0, -2, 2));
  ask.options.edits.presence_penalty = static_cast<float>(fields.number("presence_penalty", 0, -2, 2));
}

void read_adapters(const Fields& fields, Ask& ask) {
  const Json* list = fields.array("lora");
  if (!list) return;
  AdapterUses& uses = ask.adapters.emplace();
  for (const Json& item : *list) {
    if (!item.is_object()) fields.wrong("lora", "objects of an id and a scale", item);
    const Fields one(item, fields.path("lora") + ".");
    const auto adapter = static_cast<int>(one.integer("id", -1, 0, 1 << 20));
    const auto scale = static_cast<float>(one.number("scale", 1, -1000, 1000));
    if (adapter < 0) one.need("id");
    const auto same = [&](const AdapterUse& use) { return use.adapter == adapter; };
    if (std::any_of(uses.begin(), uses.end(), same)) fields.wrong("lora", "each adapter once", item);
    uses.push_back({adapter, scale});
  }
}

void read_format(const Fields& format, const Fields& schema_owner, Ask& ask) {
  const std::string type = format.need_string("type");
  if (type == "text") return;
  if (type == "json_object") {
    ask.constraint = {.kind = Constraint::Kind::kJsonObject, .param = format.path("type")};
  } else if (type == "json_schema") {
    ask.constraint = {.kind = Constraint::Kind::kJsonSchema,
                      .text = schema_owner.need("schema").dump(),
                      .param = schema_owner.path("schema")};
  } else {
    format.wrong("type", "text, json_object or json_schema", format.need("type"));
  }
}

// ---- answering

void post(const ContextPtr& context, std::function<void()> work) {
  context->reply->post([context, work = std::move(work)] {
    if (context->reply->gone()) return;
    try {
      work();
    } catch (...) {
      send_error(*context, current_error());
    }
  });
}

void with_model(ContextPtr context, const std::string& name, OnServed work) {
  EngineThread& engine = context->engine;
  NamedModel named = name.empty() ? NamedModel{&engine.models().front()} : engine.find_named(name);
  if (!named.model && name.ends_with(":latest")) named = engine.find_named(name.substr(0, name.size() - 7));
  const ModelSpec* spec = named.model;
  if (!spec) {
    throw ApiError{
        .status = 404,
        .message = fmt::format("the model '{}' does not exist; there are: {}", name, fmt::join(engine.names(), ", ")),
        .param = "model",
        .code = "model_not_found"};
  }
  context->model = spec->name;
  if (named.adapter >= 0) {
    const NamedAdapter& adapter = spec->adapters[static_cast<size_t>(named.adapter)];
    context->model += ":" + adapter.name;
    context->adapters = {{named.adapter, adapter.spec.scale}};
  }
  engine.with_model(
      spec->name,
      [context, work = std::move(work)](std::shared_ptr<const ServedModel> model, const std::string& failure) {
        post(context, [work, model, failure] {
          if (!model) throw ApiError{.status = 500, .message = failure, .type = "server_error"};
          work(model);
        });
      },
      context->client.name);
}

std::vector<int32_t> prompt_tokens(const ServedModel& model, const Ask& ask, std::string* text) {
  model.model.need_text();
  const Tokenizer& tokenizer = model.model.need_tokenizer();
  if (!ask.prompt_ids.empty()) return ask.prompt_ids;
  if (!ask.chat) return tokenizer.encode(ask.prompt, true);
  if (!model.model.chat_template || !model.model.chat_template->present()) {
    throw ApiError{.message = fmt::format("the model '{}' has no chat template; use /v1/completions", model.name)};
  }
  const std::string rendered = model.model.chat_template->render(ask.messages, ask.tools, true, ask.template_variables);
  if (text) *text = rendered;
  return tokenizer.encode(rendered, false);
}

namespace {

Sampling sampling_of(const Ask& ask, const Sampling& recommended) {
  Sampling sampling = recommended;
  if (ask.temperature) sampling.temperature = static_cast<float>(*ask.temperature);
  if (ask.top_p) sampling.top_p = static_cast<float>(*ask.top_p);
  if (ask.min_p) sampling.min_p = static_cast<float>(*ask.min_p);
  if (ask.top_k) sampling.top_k = static_cast<int>(*ask.top_k);
  if (ask.repeat_penalty) sampling.repeat_penalty = static_cast<float>(*ask.repeat_penalty);
  sampling.seed = ask.seed ? static_cast<uint64_t>(*ask.seed) : std::random_device{}();
  check(sampling);
  return sampling;
}

std::vector<std::string> tool_names(const Ask& ask) {
  std::vector<std::string> names;
  if (!ask.tool_calls || !ask.tools.is_array()) return names;
  for (const Json& tool : ask.tools) names.push_back(tool["function"]["name"].text());
  return names;
}

// One answer on its way from the engine to the wire; lives on the connection's strand.
struct Answering {
  ContextPtr context;
  std::unique_ptr<Wire> wire;
  std::vector<AnswerParser> parsers;
  std::vector<Choice> choices;
  int left = 0;
  uint64_t number = 0;  // the engine's
  std::shared_ptr<const ServedModel> model;
  std::vector<std::string> stop_texts;
  bool failed = false, parallel_calls = true, show_special = false;

  // Whatever goes wrong on the strand ends this answer with an error in its own format, and no other.
  template <typename Work>
  void guard(const Work& work) {
    if (failed || context->reply->gone()) return;
    try {
      work();
    } catch (...) {
      failed = true;
      context->finish = "error";
      context->engine.cancel(number);
      try {
        wire->error(current_error());
      } catch (...) {
        context->reply->end();
      }
    }
  }

  void take(const Piece& piece) {
    if (!piece.failure.empty()) throw ApiError{.status = 500, .message = piece.failure, .type = "server_error"};
    const size_t at = static_cast<size_t>(piece.sample);
    Choice& choice = choices[at];
    choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    choice.logprobs.insert(choice.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
    add(piece, parsers[at].push(piece.text), choice);
    if (!piece.finished) return;
    add({.sample = piece.sample}, parsers[at].finish(), choice);
    const bool full = piece.reason == StopReason::kMaxTokens || piece.reason == StopReason::kContextFull ||
                      piece.reason == StopReason::kNoToken;
    choice.finish = full ? "length" : choice.calls.empty() ? "stop" : "tool_calls";
    if (piece.reason == StopReason::kStopText) choice.stop_text = stop_text_of(choice);
    Usage& usage = context->usage;
    usage.completion += piece.total_tokens;
    usage.cached = std::max(usage.cached, static_cast<size_t>(piece.timing.found));
    usage.timing = piece.timing;
    wire->finish(piece.sample, choice);
    if (--left > 0) return;
    context->finish = choice.finish;
    if (context->log_text) context->text = choice.content;
    wire->end(choices, usage);
  }

  // The first of the stop texts in what the tokens say, which is the one that the answer ended with.
  std::string stop_text_of(const Choice& choice) const {
    const std::string all = model->model.need_tokenizer().decode(choice.tokens, /*skip_special=*/!show_special);
    size_t first = std::string::npos;
    std::string found;
    for (const std::string& text : stop_texts) {
      const size_t at = all.find(text);
      if (at >= first) continue;
      first = at;
      found = text;
    }
    return found;
  }

  void add(const Piece& piece, AnswerParts parts, Choice& choice) {
    if (parts.empty() && piece.tokens.empty()) return;
    choice.reasoning += parts.reasoning;
    choice.content += parts.content;
    if (!parallel_calls) parts.calls.resize(std::min<size_t>(parts.calls.size(), choice.calls.empty() ? 1 : 0));
    choice.calls.insert(choice.calls.end(), parts.calls.begin(), parts.calls.end());
    wire->delta(piece.sample, parts, piece, choice);
  }
};

void ask_engine(ContextPtr context, const Ask& ask, const std::shared_ptr<const ServedModel>& model,
                const MakeWire& make_wire) {
  const ServedModel& served = *model;
  std::string prompt_text;
  GenerateRequest request;
  request.prompt = prompt_tokens(served, ask, &prompt_text);
  const size_t prompt = request.prompt.size(), context_tokens = static_cast<size_t>(served.context);
  if (prompt == 0) throw ApiError{.message = "the prompt is empty", .param = ask.chat ? "messages" : "prompt"};
  if (prompt >= context_tokens) {
    throw ApiError{
        .message = fmt::format("the prompt has {} tokens, and the context of this model {}, the answer included",
                               prompt, context_tokens),
        .param = ask.chat ? "messages" : "prompt",
        .code = "context_length_exceeded"};
  }
  check_tokens(served.model.config, request.prompt, 0, served.context);
  if (ask.samples > context->engine.sequences()) {
    throw ApiError{.message = fmt::format("'n' must be 1 to {}", context->engine.sequences()), .param = "n"};
  }
  request.options = ask.options;
  request.options.sampling = sampling_of(ask, served.model.recommended);
  if (!ask.past_end) request.options.end_ids = served.model.config.eos_ids;
  const int room = static_cast<int>(context_tokens - prompt);
  request.options.max_tokens = ask.options.max_tokens > 0 ? std::min(ask.options.max_tokens, room) : room;
  for (const auto& [id, bias] : ask.options.edits.bias) {
    if (id < 0 || id >= served.model.config.vocab) {
      throw ApiError{
          .message = fmt::format("'logit_bias' names token {}, and there are {}", id, served.model.config.vocab),
          .param = "logit_bias"};
    }
  }
  request.samples = ask.samples;
  request.client = context->client.name;
  request.salt = context->client.salt;
  request.adapters = ask.adapters.value_or(context->adapters);
  for (const AdapterUse& use : request.adapters) {
    if (static_cast<size_t>(use.adapter) < served.adapters) continue;
    throw ApiError{.message = fmt::format("'lora' names adapter {}, and there are {}", use.adapter, served.adapters),
                   .param = "lora"};
  }
  AnswerFormat format =
      ask.chat && served.model.chat_template ? answer_format(served.model.chat_template->source()) : AnswerFormat{};
  const Tokenizer& tokenizer = served.model.need_tokenizer();
  const std::vector<std::string> marks = format.marks();
  request.options.show_special = std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
    return tokenizer.is_special(tokenizer.token_id(mark));
  });
  if (ask.constraint.kind != Constraint::Kind::kNone || ask.must_call)
    request.options.grammar = answer_grammar(ask, format, prompt_text, served.trie->of(tokenizer));
  // A template that has no words for calls: the object alone.
  if (ask.must_call && !format.channels && format.call_open.empty()) format.bare_calls = true;

  // Whoever lets go of it last, it goes on the strand: the engine thread does not wait for a log line.
  const std::shared_ptr<Answering> answering(new Answering, [reply = context->reply](Answering* last) {
    reply->post([owned = std::shared_ptr<Answering>(last)] {});
  });
  answering->context = context;
  answering->wire = make_wire(served);
  answering->left = ask.samples;
  answering->parallel_calls = ask.parallel_calls;
  answering->model = model;
  answering->stop_texts = request.options.stop_texts;
  answering->show_special = request.options.show_special;
  answering->choices.resize(static_cast<size_t>(ask.samples));
  for (int i = 0; i < ask.samples; ++i) answering->parsers.emplace_back(format, prompt_text, tool_names(ask));
  context->usage.prompt = prompt;
  const std::shared_ptr<HttpReply> reply = context->reply;
  const uint64_t number = context->engine.submit(model, std::move(request), [reply, answering](Piece piece) {
    reply->post([answering, piece = std::move(piece)] { answering->guard([&] { answering->take(piece); }); });
  });
  if (number == 0)
    throw ApiError{
        .status = 429, .message = "too many requests are waiting", .code = "queue_full", .type = "rate_limit_error"};
  answering->number = number;
  // The context holds the reply: were it held in turn, neither would go where a server stops before the answer's end.
  reply->on_gone([weak = std::weak_ptr(context), number] {
    const ContextPtr still = weak.lock();
    if (!still) return;
    still->finish = "client_gone";
    still->engine.cancel(number);
  });
  answering->guard([&] { answering->wire->start(); });
}

}  // namespace

void answer(ContextPtr context, Ask ask, MakeWire make_wire) {
  const std::string name = ask.model;
  with_model(context, name, [context, ask = std::move(ask), make_wire](std::shared_ptr<const ServedModel> model) {
    ask_engine(context, ask, model, make_wire);
  });
}

}  // namespace doppler::serve
