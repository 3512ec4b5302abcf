// /api/chat, /api/generate, /api/show and /api/tags in Ollama's words: lines of JSON, streamed unless told otherwise.
#include <fmt/format.h>

#include "base/error.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

class OllamaWire : public Wire {
 public:
  OllamaWire(ContextPtr context, bool chat, bool stream)
      : context_(std::move(context)), model_(context_->model), chat_(chat), stream_(stream) {}

  void start() override {
    if (stream_) context_->reply->begin("application/x-ndjson", "");
  }
  void delta(int, const AnswerParts& parts, const Piece&, const Choice&) override {
    if (stream_ && !parts.empty()) line(said(parts.reasoning, parts.content, parts.calls));
  }
  void finish(int, const Choice&) override {}
  void end(const std::vector<Choice>& choices, const Usage& usage) override {
    const Choice& choice = choices[0];
    Json last = stream_ ? said("", "", {}) : said(choice.reasoning, choice.content, choice.calls);
    const auto ns = [](double ms) { return static_cast<int64_t>(ms * 1e6); };
    const Timing& timing = usage.timing;
    last["done"] = true;
    last["done_reason"] = choice.finish == "length" ? "length" : "stop";
    last["total_duration"] = ns(timing.first_token_ms + timing.decode_ms);
    last["load_duration"] = 0;
    last["prompt_eval_count"] = usage.prompt;
    last["prompt_eval_duration"] = ns(timing.prefill_ms);
    last["eval_count"] = usage.completion;
    last["eval_duration"] = ns(timing.decode_ms);
    if (!stream_) return send_json(*context_->reply, last);
    line(last);
    context_->reply->end();
  }
  void error(const ApiError& error) override {
    if (!context_->reply->begun()) return send_error(*context_, error);
    line(error_body(context_->request.path, error));
    context_->reply->end();
  }

 private:
  Json said(const std::string& reasoning, const std::string& content, const std::vector<ToolCall>& calls) const {
    Json json = {{"model", model_}, {"created_at", iso_time()}};
    if (chat_) {
      Json message = {{"role", "assistant"}, {"content", content}};
      if (!reasoning.empty()) message["thinking"] = reasoning;
      for (const ToolCall& call : calls) {
        message["tool_calls"].push_back(
            {{"function", {{"name", call.name}, {"arguments", parse_json(call.arguments, "arguments")}}}});
      }
      json["message"] = std::move(message);
    } else {
      json["response"] = content;
      if (!reasoning.empty()) json["thinking"] = reasoning;
    }
    json["done"] = false;
    return json;
  }
  void line(const Json& json) { context_->reply->write(json.dump() + "\n"); }

  ContextPtr context_;
  std::string model_;
  bool chat_, stream_;
};

Ask read_ollama(const Fields& fields) {
  Ask ask;
  ask.model = fields.need_string("model");
  ask.stream = fields.boolean("stream", true);
  if (const Json* format = fields.find("format"); format && *format != Json("")) {
    if (format->is_object()) {
      ask.constraint = {.kind = Constraint::Kind::kJsonSchema, .text = format->dump(), .param = "format"};
    } else if (*format == Json("json")) {
      ask.constraint = {.kind = Constraint::Kind::kJsonObject, .param = "format"};
    } else {
      fields.wrong("format", "\"json\" or a schema", *format);
    }
  }
  if (const Json* options = fields.find("options")) {
    const Fields inner(*options, "options.");
    read_sampling(inner, ask);
    ask.options.stop_texts = inner.strings("stop");
    ask.options.max_tokens = static_cast<int>(std::max<int64_t>(0, inner.integer("num_predict", 0, -2, 1 << 30)));
  }
  if (const Json* think = fields.find("think"); think && think->is_boolean())
    ask.template_variables["enable_thinking"] = *think;
  return ask;
}

void respond(const ContextPtr& context, const Ask& ask, bool chat) {
  answer(context, ask, [context, chat, stream = ask.stream](const ServedModel&) {
    return std::make_unique<OllamaWire>(context, chat, stream);
  });
}

Json details(const ServedModel* model) {
  return {{"format", "rdrr"},
          {"family", ""},
          {"families", Json::array()},
          {"parameter_size", ""},
          {"quantization_level", model ? model->model.quantization : ""}};
}

}  // namespace

void ollama_chat(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask = read_ollama(fields);
  const Json& messages = fields.need("messages");
  if (!messages.is_array() || messages.empty())
    fields.wrong("messages", "an array with at least one message", messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Fields message(messages[i], fmt::format("messages[{}].", i));
    if (const Json* images = message.array("images"); images && !images->empty())
      message.refuse("images", "this model reads text");
  }
  ask.messages = openai_messages(messages, "messages");
  read_tools(fields, ask);
  respond(context, ask, true);
}

void ollama_generate(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask = read_ollama(fields);
  ask.prompt = fields.need_string("prompt");
  for (const char* unread : {"suffix", "template", "context"}) {
    if (const Json* value = fields.find(unread); value && !value->empty() && *value != Json(""))
      fields.refuse(unread, "use /api/chat or raw");
  }
  ask.chat = !fields.boolean("raw", false);
  if (ask.chat) {
    const std::string system = fields.string("system", "");
    if (!system.empty()) ask.messages.push_back({{"role", "system"}, {"content", system}});
    ask.messages.push_back({{"role", "user"}, {"content", ask.prompt}});
  }
  respond(context, ask, false);
}

void ollama_show(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  const std::string name = fields.string("model", fields.string("name", ""));
  with_model(context, name, [context](const std::shared_ptr<const ServedModel>& model) {
    const bool tools =
        model->model.chat_template && !answer_format(model->model.chat_template->source()).call_open.empty();
    send_json(
        *context->reply,
        {{"template", model->model.chat_template ? model->model.chat_template->source() : ""},
         {"details", details(model.get())},
         {"model_info", {{"general.basename", model->model.config.id}, {"general.context_length", model->context}}},
         {"capabilities", !model->model.config.makes_text() ? Json::array({"embedding"})
                          : tools                           ? Json::array({"completion", "tools"})
                                                            : Json::array({"completion"})}});
  });
}

Json ollama_tags(const EngineThread& engine) {
  Json models = Json::array();
  for (const std::string& name : engine.names()) {
    models.push_back({{"name", name},
                      {"model", name},
                      {"modified_at", iso_time()},
                      {"size", 0},
                      {"digest", ""},
                      {"details", details(nullptr)}});
  }
  return {{"models", std::move(models)}};
}

}  // namespace doppler::serve
