// /v1/chat/completions and /v1/completions in OpenAI's words.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

// A token's text as it stands in the middle of a text.
std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  const std::string once = tokenizer.decode(std::vector<int32_t>{id}, false);
  const std::string twice = tokenizer.decode(std::vector<int32_t>{id, id}, false);
  return twice.starts_with(once) ? twice.substr(once.size()) : once;
}

// A token may be a part of a character: its text is then the sign for what is no character, its bytes are its own.
Json token_json(const Tokenizer& tokenizer, int32_t id, float logprob) {
  std::vector<int> bytes;
  for (const char c : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(tokenizer, id)}, {"logprob", logprob}, {"bytes", Json(bytes)}};
}

Json chat_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, std::span<const TokenLogprobs> noted) {
  Json content = Json::array();
  for (size_t i = 0; i < noted.size(); ++i) {
    Json token = token_json(tokenizer, tokens[i], noted[i].chosen);
    token["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : noted[i].likeliest)
      token["top_logprobs"].push_back(token_json(tokenizer, id, logprob));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json text_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, std::span<const TokenLogprobs> noted,
                   size_t& offset) {
  Json texts = Json::array(), chosen = Json::array(), top = Json::array(), offsets = Json::array();
  for (size_t i = 0; i < noted.size(); ++i) {
    const std::string text = token_text(tokenizer, tokens[i]);
    Json likeliest = Json::object();
    for (const auto& [id, logprob] : noted[i].likeliest) likeliest[token_text(tokenizer, id)] = logprob;
    texts.push_back(text);
    chosen.push_back(noted[i].chosen);
    top.push_back(std::move(likeliest));
    offsets.push_back(offset);
    offset += text.size();
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(chosen)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}}};
}

Json call_json(const ToolCall& call, const std::string& id) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

struct Style {
  bool chat = true, stream = false, include_usage = false;
};

class OpenAiWire : public Wire {
 public:
  OpenAiWire(ContextPtr context, const ServedModel& model, const Ask& ask, Style style)
      : context_(std::move(context)),
        tokenizer_(model.model.need_tokenizer()),
        model_(context_->model),
        style_(style),
        logprobs_(ask.options.logprobs >= 0),
        id_(random_id(style.chat ? "chatcmpl-" : "cmpl-")),
        created_(unix_time()),
        offsets_(static_cast<size_t>(ask.samples)) {}

  void start() override {
    if (!style_.stream) return;
    context_->reply->begin("text/event-stream", ": ping\n\n");
    for (size_t i = 0; style_.chat && i < offsets_.size(); ++i) {
      chunk({{"index", i},
             {"delta", {{"role", "assistant"}, {"content", ""}}},
             {"logprobs", nullptr},
             {"finish_reason", nullptr}});
    }
  }

  void delta(int sample, const AnswerParts& parts, const Piece& piece, const Choice& choice) override {
    if (!style_.stream) return;
    Json logprobs;
    if (logprobs_ && !piece.tokens.empty()) {
      logprobs = style_.chat
                     ? chat_logprobs(tokenizer_, piece.tokens, piece.logprobs)
                     : text_logprobs(tokenizer_, piece.tokens, piece.logprobs, offsets_[static_cast<size_t>(sample)]);
    }
    const auto send = [&](const char* key, Json value) {
      Json body = {{"index", sample}};
      if (style_.chat) {
        Json inner = Json::object();
        inner[key] = std::move(value);
        body["delta"] = std::move(inner);
      } else {
        body["text"] = std::move(value);
      }
      body["logprobs"] = std::exchange(logprobs, Json());
      body["finish_reason"] = nullptr;
      chunk(std::move(body));
    };
    if (!parts.reasoning.empty()) send("reasoning_content", parts.reasoning);
    if (!parts.content.empty()) send("content", parts.content);
    size_t index = choice.calls.size() - parts.calls.size();
    for (const ToolCall& call : parts.calls) {
      Json json = call_json(call, random_id("call_"));
      json["function"]["arguments"] = "";
      Json first = {{"index", index}};
      first.update(json);
      send("tool_calls", Json::array({first}));
      send("tool_calls", Json::array({{{"index", index}, {"function", {{"arguments", call.arguments}}}}}));
      ++index;
    }
    if (!logprobs.is_null()) send("content", "");
  }

  void finish(int sample, const Choice& choice) override {
    if (!style_.stream) return;
    Json body = {{"index", sample}};
    style_.chat ? body["delta"] = Json::object() : body["text"] = "";
    body["logprobs"] = nullptr;
    body["finish_reason"] = choice.finish;
    chunk(std::move(body));
  }

  void end(const std::vector<Choice>& choices, const Usage& usage) override {
    if (style_.stream) {
      if (style_.include_usage) {
        Json last = envelope(true);
        last["choices"] = Json::array();
        last["usage"] = usage_json(usage);
        event(last);
      }
      context_->reply->write("data: [DONE]\n\n");
      return context_->reply->end();
    }
    Json body = envelope(false);
    body["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) body["choices"].push_back(whole(i, choices[i]));
    body["usage"] = usage_json(usage);
    send_json(*context_->reply, body);
  }

  void error(const ApiError& error) override {
    if (!context_->reply->begun()) return send_error(*context_, error);
    event(openai_error(error));
    context_->reply->end();
  }

 private:
  Json envelope(bool chunk) const {
    return {{"id", id_},
            {"object", style_.chat ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion"},
            {"created", created_},
            {"model", model_}};
  }
  void event(const Json& json) { context_->reply->write("data: " + json.dump() + "\n\n"); }
  void chunk(Json choice) {
    Json json = envelope(true);
    json["choices"] = Json::array({std::move(choice)});
    if (style_.include_usage) json["usage"] = nullptr;
    event(json);
  }
  Json whole(size_t index, const Choice& choice) {
    Json json = {{"index", index}};
    if (style_.chat) {
      Json message = {{"role", "assistant"},
                      {"content", choice.calls.empty() || !choice.content.empty() ? Json(choice.content) : Json()}};
      message["refusal"] = nullptr;
      if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
      for (const ToolCall& call : choice.calls) message["tool_calls"].push_back(call_json(call, random_id("call_")));
      json["message"] = std::move(message);
    } else {
      json["text"] = choice.content;
    }
    size_t offset = 0;
    json["logprobs"] = !logprobs_    ? Json()
                       : style_.chat ? chat_logprobs(tokenizer_, choice.tokens, choice.logprobs)
                                     : text_logprobs(tokenizer_, choice.tokens, choice.logprobs, offset);
    json["finish_reason"] = choice.finish;
    return json;
  }

  ContextPtr context_;
  Tokenizer tokenizer_;
  std::string model_;
  Style style_;
  bool logprobs_;
  std::string id_;
  int64_t created_;
  std::vector<size_t> offsets_;  // of each sample's next token in its text
};

// Fields that both endpoints have.
void read_common(const Fields& fields, Ask& ask, Style& style) {
  ask.model = fields.string("model", "");
  read_sampling(fields, ask);
  ask.samples = static_cast<int>(fields.integer("n", 1, 1, 128));
  ask.options.stop_texts = fields.strings("stop");
  if (ask.options.stop_texts.size() > 16) fields.wrong("stop", "at most 16 strings", *fields.find("stop"));
  ask.stream = style.stream = fields.boolean("stream", false);
  ask.past_end = fields.boolean("ignore_eos", false);
  if (const Json* options = fields.find("stream_options")) {
    style.include_usage = style.stream && Fields(*options, "stream_options.").boolean("include_usage", false);
  }
  ask.options.max_tokens = static_cast<int>(fields.integer("max_tokens", 0, 1, 1 << 30));
  if (const Json* bias = fields.find("logit_bias")) {
    if (!bias->is_object()) fields.wrong("logit_bias", "an object", *bias);
    for (const auto& [key, value] : bias->items()) {
      if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos ||
          !value.is_number()) {
        fields.wrong("logit_bias", "an object of token ids and numbers", *bias);
      }
      ask.options.edits.bias.emplace_back(static_cast<int32_t>(std::stol(key)),
                                          std::clamp(value.get<float>(), -100.f, 100.f));
    }
  }
  for (const char* other : {"guided_json", "guided_regex", "guided_grammar", "structured_outputs"}) {
    if (fields.find(other)) fields.refuse(other, "use 'response_format' or 'grammar'");
  }
  if (const Json* format = fields.find("response_format")) {
    const Fields wanted(*format, "response_format.");
    const Json* schema = wanted.find("json_schema");
    read_format(wanted, schema ? Fields(*schema, "response_format.json_schema.") : wanted, ask);
  }
  if (fields.find("grammar")) {
    if (ask.constraint.kind != Constraint::Kind::kNone)
      fields.refuse("grammar", "there is a 'response_format' already");
    ask.constraint = {
        .kind = Constraint::Kind::kGrammar, .text = fields.need_string("grammar"), .param = fields.path("grammar")};
  }
}

// Text of a message, which is a string, a list of parts, or nothing.
std::string content_text(const Fields& message, const std::string& name) {
  const Json* content = message.find(name);
  if (!content) return "";
  if (content->is_string()) return content->text();
  if (!content->is_array()) message.wrong(name, "a string or a list of parts", *content);
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Fields part((*content)[i], fmt::format("{}[{}].", message.path(name), i));
    const std::string type = part.string("type", "text");
    if (type != "text" && type != "input_text" && type != "output_text")
      part.refuse("type", "'" + type + "' parts; this model reads text");
    text += part.need_string("text");
  }
  return text;
}

Json read_messages(const Json& messages, const std::string& where) {
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Fields message(messages[i], fmt::format("{}[{}].", where, i));
    std::string role = message.need_string("role");
    if (role == "developer") role = "system";
    if (role == "function") role = "tool";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
      message.wrong("role", "system, developer, user, assistant or tool", messages[i]["role"]);
    }
    Json turn = {{"role", role}, {"content", content_text(message, "content")}};
    for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
      if (message.find(name)) turn[name] = message.string(name, "");
    }
    if (const Json* calls = message.array("tool_calls")) {
      for (size_t k = 0; k < calls->size(); ++k) {
        const Fields call((*calls)[k], message.path(fmt::format("tool_calls[{}].", k)));
        const Fields function(call.need("function"), call.path("function."));
        Json arguments = function.find("arguments") ? *function.find("arguments") : Json::object();
        if (arguments.is_string()) {  // templates take an object; what is none stays the text that it is
          try {
            Json parsed = parse_json(arguments.text(), "arguments");
            if (parsed.is_object()) arguments = std::move(parsed);
          } catch (const Failure&) {
          }
        }
        turn["tool_calls"].push_back(
            {{"id", call.string("id", "")},
             {"type", "function"},
             {"function", {{"name", function.need_string("name")}, {"arguments", arguments}}}});
      }
    }
    out.push_back(std::move(turn));
  }
  return out;
}

}  // namespace

Json openai_messages(const Json& messages, const std::string& where) { return read_messages(messages, where); }

// Functions that may be called; what is no function is passed over. `choice` none takes them away.
void read_tools(const Fields& fields, Ask& ask) {
  if (const Json* tools = fields.array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fields.path(fmt::format("tools[{}].", i)));
      if (tool.string("type", "function") != "function") continue;
      Json function = tool.find("function") ? *tool.find("function") : (*tools)[i];
      Fields(function, tool.path("function.")).need_string("name");
      function.erase("type");
      ask.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  ask.parallel_calls = fields.boolean("parallel_tool_calls", true);
  const Json* choice = fields.find("tool_choice");
  if (!choice || *choice == Json("auto")) return;
  if (*choice == Json("none")) {
    ask.tools = {};
  } else if (*choice == Json("required")) {
    require_call(fields, "", ask);
  } else if (choice->is_object() && Fields(*choice, "tool_choice.").string("type", "function") == "function") {
    const Fields named(*choice, fields.path("tool_choice."));  // {"function": {"name": …}}, or without the "function"
    const Json* function = named.find("function");
    require_call(fields, (function ? Fields(*function, named.path("function.")) : named).need_string("name"), ask);
  } else {
    fields.wrong("tool_choice", "none, auto, required or a function", *choice);
  }
}

void require_call(const Fields& fields, const std::string& name, Ask& ask) {
  std::vector<std::string> names;
  for (const Json& tool : ask.tools.is_array() ? ask.tools : Json::array())
    names.push_back(tool["function"]["name"].text());
  if (names.empty())
    throw ApiError{.message = "'tool_choice' asks for a call, and there are no tools", .param = "tools"};
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    fields.wrong("tool_choice", fmt::format("one of the tools: {}", fmt::join(names, ", ")), Json(name));
  }
  ask.must_call = true;
  ask.only_call = name;
}

void openai_chat(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask;
  Style style;
  read_common(fields, ask, style);
  const Json& messages = fields.need("messages");
  if (!messages.is_array() || messages.empty())
    fields.wrong("messages", "an array with at least one message", messages);
  ask.messages = read_messages(messages, "messages");
  read_tools(fields, ask);
  if (fields.find("max_completion_tokens")) {
    ask.options.max_tokens = static_cast<int>(fields.integer("max_completion_tokens", 0, 1, 1 << 30));
  }
  const int64_t top = fields.integer("top_logprobs", 0, 0, 20);
  if (fields.boolean("logprobs", false)) {
    ask.options.logprobs = static_cast<int>(top);
  } else if (top > 0) {
    throw ApiError{.message = "'top_logprobs' needs 'logprobs' to be true", .param = "top_logprobs"};
  }
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) fields.wrong("chat_template_kwargs", "an object", *variables);
    ask.template_variables = *variables;
  }
  if (fields.find("reasoning_effort"))
    ask.template_variables["reasoning_effort"] = fields.string("reasoning_effort", "");
  answer(context, ask, [context, ask, style](const ServedModel& model) {
    return std::make_unique<OpenAiWire>(context, model, ask, style);
  });
}

void openai_completions(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask;
  ask.chat = false;
  Style style{.chat = false};
  read_common(fields, ask, style);
  const Json* prompt = &fields.need("prompt");
  if (prompt->is_array() && prompt->size() == 1 && !(*prompt)[0].is_number()) prompt = &(*prompt)[0];
  if (prompt->is_string()) {
    ask.prompt = prompt->text();
  } else if (prompt->is_array() && !prompt->empty()) {
    for (const Json& id : *prompt) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
        fields.wrong("prompt", "one string, or one list of token ids", *prompt);
      ask.prompt_ids.push_back(id.get<int32_t>());
    }
  } else {
    fields.wrong("prompt", "one string, or one list of token ids", *prompt);
  }
  if (fields.boolean("echo", false)) fields.refuse("echo", "the prompt is not repeated");
  if (!fields.string("suffix", "").empty()) fields.refuse("suffix", "text is written from front to back");
  if (fields.integer("best_of", 1, 1, 128) != 1) fields.refuse("best_of", "ask for 'n' answers instead");
  if (fields.find("logprobs")) ask.options.logprobs = static_cast<int>(fields.integer("logprobs", 0, 0, 20));
  if (!fields.find("max_tokens")) ask.options.max_tokens = 16;
  answer(context, ask, [context, ask, style](const ServedModel& model) {
    return std::make_unique<OpenAiWire>(context, model, ask, style);
  });
}

}  // namespace doppler::serve
