// /v1/messages and /v1/messages/count_tokens in Anthropic's words.
#include <fmt/format.h>

#include "base/error.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

// A client's preamble that differs in every request would keep any prefix from being found again.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

std::string block_text(const Json& content, const Fields& owner, const std::string& name) {
  if (content.is_string()) return content.text();
  if (!content.is_array()) owner.wrong(name, "a string or a list of blocks", content);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Fields block(content[i], fmt::format("{}[{}].", owner.path(name), i));
    const std::string type = block.string("type", "text");
    if (type != "text") block.refuse("type", "'" + type + "' blocks here; this model reads text");
    const std::string words = block.need_string("text");
    if (!words.starts_with(kBillingHeader)) text += words;
  }
  return text;
}

// One message becomes several where it holds results of tools.
void read_message(const Json& json, const std::string& where, Json& out) {
  const Fields message(json, where);
  const std::string role = message.need_string("role");
  if (role != "user" && role != "assistant" && role != "system")
    message.wrong("role", "user or assistant", json["role"]);
  const Json& content = message.need("content");
  if (content.is_string()) return out.push_back({{"role", role}, {"content", content.text()}});
  if (!content.is_array()) message.wrong("content", "a string or a list of blocks", content);
  Json turn = {{"role", role}, {"content", ""}};
  std::string text;
  bool results = false;
  for (size_t i = 0; i < content.size(); ++i) {
    const Fields block(content[i], fmt::format("{}content[{}].", where, i));
    const std::string type = block.need_string("type");
    if (type == "text") {
      text += block.need_string("text");
    } else if (type == "thinking") {
      turn["reasoning_content"] = block.string("thinking", "");
    } else if (type == "redacted_thinking") {
      continue;
    } else if (type == "tool_use") {
      turn["tool_calls"].push_back({{"id", block.string("id", "")},
                                    {"type", "function"},
                                    {"function",
                                     {{"name", block.need_string("name")},
                                      {"arguments", block.find("input") ? *block.find("input") : Json::object()}}}});
    } else if (type == "tool_result") {
      results = true;
      out.push_back({{"role", "tool"},
                     {"tool_call_id", block.string("tool_use_id", "")},
                     {"content", block.find("content") ? block_text(*block.find("content"), block, "content") : ""}});
    } else {
      block.refuse("type", "'" + type + "' blocks; this model reads text");
    }
  }
  turn["content"] = text;
  if (!results || !text.empty()) out.push_back(std::move(turn));
}

Ask read_anthropic(const Fields& fields) {
  Ask ask;
  ask.model = fields.string("model", "");
  read_sampling(fields, ask);
  ask.options.stop_texts = fields.strings("stop_sequences");
  if (const Json* system = fields.find("system")) {
    const std::string text = block_text(*system, fields, "system");
    if (!text.empty()) ask.messages.push_back({{"role", "system"}, {"content", text}});
  }
  const Json& messages = fields.need("messages");
  if (!messages.is_array() || messages.empty())
    fields.wrong("messages", "an array with at least one message", messages);
  for (size_t i = 0; i < messages.size(); ++i) read_message(messages[i], fmt::format("messages[{}].", i), ask.messages);
  if (const Json* tools = fields.array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fmt::format("tools[{}].", i));
      if (tool.string("type", "custom") != "custom") continue;
      ask.tools.push_back(
          {{"type", "function"},
           {"function",
            {{"name", tool.need_string("name")},
             {"description", tool.string("description", "")},
             {"parameters", tool.find("input_schema") ? *tool.find("input_schema") : Json::object()}}}});
    }
  }
  if (const Json* choice = fields.find("tool_choice")) {
    const Fields wanted(*choice, "tool_choice.");
    const std::string type = wanted.need_string("type");
    ask.parallel_calls = !wanted.boolean("disable_parallel_tool_use", false);
    if (type == "none") {
      ask.tools = {};
    } else if (type == "any" || type == "tool") {
      require_call(fields, type == "tool" ? wanted.need_string("name") : "", ask);
    } else if (type != "auto") {
      wanted.wrong("type", "auto, any, tool or none", (*choice)["type"]);
    }
  }
  return ask;
}

class AnthropicWire : public Wire {
 public:
  AnthropicWire(ContextPtr context, bool stream)
      : context_(std::move(context)), model_(context_->model), stream_(stream), id_(random_id("msg_")) {}

  void start() override {
    if (!stream_) return;
    context_->reply->begin("text/event-stream", "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    event({{"type", "message_start"}, {"message", message(Json::array(), Json(), context_->usage)}});
  }
  void delta(int, const AnswerParts& parts, const Piece&, const Choice&) override {
    if (!stream_) return;
    if (!parts.reasoning.empty()) {
      open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      block_delta({{"type", "thinking_delta"}, {"thinking", parts.reasoning}});
    }
    if (!parts.content.empty()) {
      open("text", {{"type", "text"}, {"text", ""}});
      block_delta({{"type", "text_delta"}, {"text", parts.content}});
    }
    for (const ToolCall& call : parts.calls) {
      close();
      open("tool_use",
           {{"type", "tool_use"}, {"id", random_id("toolu_")}, {"name", call.name}, {"input", Json::object()}});
      block_delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
      close();
    }
  }
  void finish(int, const Choice&) override {}
  void end(const std::vector<Choice>& choices, const Usage& usage) override {
    const Choice& choice = choices[0];
    const char* reason = choice.finish == "length"       ? "max_tokens"
                         : choice.finish == "tool_calls" ? "tool_use"
                         : choice.stop_text.empty()      ? "end_turn"
                                                         : "stop_sequence";
    const Json stop = choice.stop_text.empty() ? Json() : Json(choice.stop_text);
    if (stream_) {
      close();
      event({{"type", "message_delta"},
             {"delta", {{"stop_reason", reason}, {"stop_sequence", stop}}},
             {"usage", usage_json(usage)}});
      event({{"type", "message_stop"}});
      return context_->reply->end();
    }
    Json content = Json::array();
    if (!choice.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", ""}});
    if (!choice.content.empty() || choice.calls.empty())
      content.push_back({{"type", "text"}, {"text", choice.content}});
    for (const ToolCall& call : choice.calls) {
      content.push_back({{"type", "tool_use"},
                         {"id", random_id("toolu_")},
                         {"name", call.name},
                         {"input", parse_json(call.arguments, "arguments")}});
    }
    Json whole = message(std::move(content), reason, usage);
    whole["stop_sequence"] = stop;
    send_json(*context_->reply, whole);
  }
  void error(const ApiError& error) override {
    if (!context_->reply->begun()) return send_error(*context_, error);
    event(error_body(context_->request.path, error));
    context_->reply->end();
  }

 private:
  static Json usage_json(const Usage& usage) {
    return {{"input_tokens", usage.prompt - usage.cached},
            {"output_tokens", usage.completion},
            {"cache_read_input_tokens", usage.cached},
            {"cache_creation_input_tokens", 0}};
  }
  Json message(Json content, Json reason, const Usage& usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content)},
            {"stop_reason", reason},
            {"stop_sequence", nullptr},
            {"usage", usage_json(usage)}};
  }
  void event(const Json& json) {
    context_->reply->write(fmt::format("event: {}\ndata: {}\n\n", json["type"].text(), json.dump()));
  }
  void open(const std::string& kind, Json block) {
    if (open_ == kind) return;
    close();
    open_ = kind;
    event({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  void block_delta(Json delta) {
    event({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  void close() {
    if (open_.empty()) return;
    event({{"type", "content_block_stop"}, {"index", index_++}});
    open_.clear();
  }

  ContextPtr context_;
  std::string model_;
  bool stream_;
  std::string id_, open_;  // the kind of block that is open
  int index_ = 0;
};

}  // namespace

void anthropic_messages(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask = read_anthropic(fields);
  fields.need("max_tokens");
  ask.options.max_tokens = static_cast<int>(fields.integer("max_tokens", 0, 1, 1 << 30));
  ask.stream = fields.boolean("stream", false);
  answer(context, ask, [context, stream = ask.stream](const ServedModel&) {
    return std::make_unique<AnthropicWire>(context, stream);
  });
}

void anthropic_count_tokens(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Ask ask = read_anthropic(Fields(body));
  with_model(context, ask.model, [context, ask](const std::shared_ptr<const ServedModel>& model) {
    send_json(*context->reply, {{"input_tokens", prompt_tokens(*model, ask).size()}});
  });
}

}  // namespace doppler::serve
