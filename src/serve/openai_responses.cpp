// /v1/responses in OpenAI's words, without anything kept between two requests.
#include <fmt/format.h>

#include "base/error.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

// Items of a conversation to messages of one.
Json read_input(const Fields& fields) {
  const Json& input = fields.need("input");
  if (input.is_string()) return Json::array({{{"role", "user"}, {"content", input.text()}}});
  if (!input.is_array() || input.empty()) fields.wrong("input", "a string, or an array of items", input);
  Json messages = Json::array();
  for (size_t i = 0; i < input.size(); ++i) {
    const Fields item(input[i], fmt::format("input[{}].", i));
    const std::string type = item.string("type", "message");
    if (type == "message") {
      messages.push_back({{"role", item.need_string("role")}, {"content", item.need("content")}});
    } else if (type == "function_call") {
      messages.push_back(
          {{"role", "assistant"},
           {"tool_calls",
            Json::array({{{"id", item.string("call_id", "")},
                          {"function",
                           {{"name", item.need_string("name")}, {"arguments", item.string("arguments", "{}")}}}}})}});
    } else if (type == "function_call_output") {
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", item.string("call_id", "")}, {"content", item.need("output")}});
    } else if (type != "reasoning") {
      item.refuse("type", "'" + type + "' items; this model reads text");
    }
  }
  return messages;
}

class ResponsesWire : public Wire {
 public:
  // `asked`: fields of the request that the response repeats.
  ResponsesWire(ContextPtr context, bool stream, Json asked)
      : context_(std::move(context)),
        model_(context_->model),
        stream_(stream),
        asked_(std::move(asked)),
        id_(random_id("resp_")),
        created_(unix_time()) {}

  void start() override {
    if (!stream_) return;
    context_->reply->begin("text/event-stream", ": ping\n\n");
    event("created", {{"response", response("in_progress", nullptr)}});
    event("in_progress", {{"response", response("in_progress", nullptr)}});
  }
  void delta(int, const AnswerParts& parts, const Piece&, const Choice&) override {
    if (!parts.reasoning.empty()) say("reasoning", parts.reasoning);
    if (!parts.content.empty()) say("message", parts.content);
    for (const ToolCall& call : parts.calls) {
      close();
      Json item = {{"id", random_id("fc_")},        {"type", "function_call"}, {"status", "in_progress"},
                   {"call_id", random_id("call_")}, {"name", call.name},       {"arguments", ""}};
      event("output_item.added", {{"output_index", output_.size()}, {"item", item}});
      part_event("function_call_arguments.delta", item, {{"delta", call.arguments}});
      part_event("function_call_arguments.done", item, {{"arguments", call.arguments}, {"name", call.name}});
      item["arguments"] = call.arguments;
      done(std::move(item));
    }
  }
  void finish(int, const Choice&) override {}
  void end(const std::vector<Choice>& choices, const Usage& usage) override {
    if (open_.empty() && output_.empty()) say("message", "");
    close();
    const bool full = choices[0].finish == "length";
    const Json whole = response(full ? "incomplete" : "completed", &usage);
    if (!stream_) return send_json(*context_->reply, whole);
    event(full ? "incomplete" : "completed", {{"response", whole}});
    context_->reply->end();
  }
  void error(const ApiError& error) override {
    if (!context_->reply->begun()) return send_error(*context_, error);
    Json failed = response("failed", nullptr);
    failed["error"] = {{"code", "server_error"}, {"message", error.message}};
    event("failed", {{"response", failed}});
    context_->reply->end();
  }

 private:
  Json response(const std::string& status, const Usage* usage) const {
    Json json = {{"id", id_},        {"object", "response"}, {"created_at", created_},
                 {"status", status}, {"model", model_},      {"error", nullptr}};
    json["incomplete_details"] = status == "incomplete" ? Json({{"reason", "max_output_tokens"}}) : Json();
    json["output"] = output_;
    for (const char* empty : {"instructions", "metadata", "previous_response_id"}) json[empty] = nullptr;
    json["parallel_tool_calls"] = true;
    json["tool_choice"] = "auto";
    json["tools"] = Json::array();
    json.update(asked_);
    if (!usage) return json["usage"] = nullptr, json;
    json["usage"] = {{"input_tokens", usage->prompt},
                     {"input_tokens_details", {{"cached_tokens", usage->cached}}},
                     {"output_tokens", usage->completion},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", usage->prompt + usage->completion}};
    return json;
  }
  // Type first, as every event has it, then its number in the stream.
  void event(const std::string& name, Json rest) {
    if (!stream_) return;
    Json json = {{"type", "response." + name}, {"sequence_number", number_++}};
    json.update(rest);
    context_->reply->write(fmt::format("event: response.{}\ndata: {}\n\n", name, json.dump()));
  }
  void part_event(const std::string& name, const Json& item, Json rest) {
    Json json = {{"item_id", item["id"]}, {"output_index", output_.size()}};
    json.update(rest);
    event(name, std::move(json));
  }
  bool thinks() const { return open_ == "reasoning"; }
  Json part() const {
    Json json = {{"type", thinks() ? "reasoning_text" : "output_text"}, {"text", text_}};
    if (!thinks()) json["annotations"] = Json::array();
    return json;
  }
  void say(const std::string& kind, const std::string& text) {
    if (open_ != kind) {
      close();
      open_ = kind;
      item_ = {{"id", random_id(thinks() ? "rs_" : "msg_")},
               {"type", kind},
               {"status", "in_progress"},
               {"content", Json::array()}};
      thinks() ? item_["summary"] = Json::array() : item_["role"] = "assistant";
      event("output_item.added", {{"output_index", output_.size()}, {"item", item_}});
      part_event("content_part.added", item_, {{"content_index", 0}, {"part", part()}});
    }
    text_ += text;
    part_event(thinks() ? "reasoning_text.delta" : "output_text.delta", item_,
               {{"content_index", 0}, {"delta", text}, {"logprobs", Json::array()}});
  }
  void close() {
    if (open_.empty()) return;
    part_event(thinks() ? "reasoning_text.done" : "output_text.done", item_,
               {{"content_index", 0}, {"text", text_}, {"logprobs", Json::array()}});
    part_event("content_part.done", item_, {{"content_index", 0}, {"part", part()}});
    item_["content"].push_back(part());
    open_.clear();
    text_.clear();
    done(std::move(item_));
  }
  void done(Json item) {
    item["status"] = "completed";
    event("output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
  }

  ContextPtr context_;
  std::string model_;
  bool stream_;
  const Json asked_;
  std::string id_, open_, text_;  // kind and text of the item that is open
  int64_t created_;
  int number_ = 0;
  Json item_, output_ = Json::array();
};

}  // namespace

void openai_responses(ContextPtr context) {
  const Json body = parse_json(context->request.body, "the body");
  const Fields fields(body);
  Ask ask;
  ask.model = fields.string("model", "");
  read_sampling(fields, ask);
  if (fields.find("previous_response_id"))
    fields.refuse("previous_response_id", "nothing is kept; send the whole conversation");
  if (const Json* text = fields.find("text")) {
    if (const Json* format = Fields(*text, "text.").find("format")) {
      const Fields wanted(*format, "text.format.");
      read_format(wanted, wanted, ask);
    }
  }
  Json messages = read_input(fields);
  if (const std::string system = fields.string("instructions", ""); !system.empty())
    ask.messages.push_back({{"role", "system"}, {"content", system}});
  for (const Json& message : openai_messages(messages, "input")) ask.messages.push_back(message);
  read_tools(fields, ask);
  ask.options.max_tokens = static_cast<int>(fields.integer("max_output_tokens", 0, 1, 1 << 30));
  ask.stream = fields.boolean("stream", false);
  Json asked = Json::object();
  for (const char* name : {"instructions", "metadata", "parallel_tool_calls", "tool_choice", "tools", "temperature",
                           "top_p", "max_output_tokens"}) {
    if (const Json* value = fields.find(name)) asked[name] = *value;
  }
  answer(context, ask, [context, stream = ask.stream, asked](const ServedModel&) {
    return std::make_unique<ResponsesWire>(context, stream, asked);
  });
}

}  // namespace doppler::serve
