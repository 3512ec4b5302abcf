// What the wire formats have in common: errors with a status, checked access to a request's fields, a question in our
// own words, and the answer to it as it comes, which each format writes down in its clients' words.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "serve/access.h"
#include "serve/answer_parser.h"
#include "serve/engine_thread.h"
#include "serve/http.h"

namespace doppler::serve {

// Thrown while a request is read; becomes the error body of the format that was asked.
struct ApiError {
  int status = 400;
  std::string message = {};
  std::string param = {};  // the field that is wrong
  std::string code = {};
  std::string type = "invalid_request_error";
};

// Fields of a JSON body, each with its type checked: absent and null are the default, another type is a 400 that names
// it.
class Fields {
 public:
  explicit Fields(const Json& object, std::string path = "");
  const Json* find(const std::string& name) const;  // null where absent or null
  const Json& need(const std::string& name) const;
  std::string string(const std::string& name, std::string otherwise) const;
  std::string need_string(const std::string& name) const;
  bool boolean(const std::string& name, bool otherwise) const;
  double number(const std::string& name, double otherwise, double least, double most) const;
  int64_t integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const;
  std::vector<std::string> strings(const std::string& name) const;  // a string is a list of one
  const Json* array(const std::string& name) const;
  // A 400 that names the field where it is set to anything but a value that means nothing here.
  void refuse(const std::string& name, const std::string& why) const;
  std::string path(const std::string& name) const { return path_ + name; }
  [[noreturn]] void wrong(const std::string& name, const std::string& expected, const Json& got) const;

 private:
  const Json& object_;
  std::string path_;
};

// What holds the answer, as the request says it. It is compiled where the model is known, on the connection's thread.
struct Constraint {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kGrammar };
  Kind kind = Kind::kNone;
  std::string text = {};   // the schema, or the grammar in GBNF
  std::string param = {};  // the field that it came from
};

// A question in our own words.
struct Ask {
  std::string model;
  bool chat = true;
  Json messages = Json::array();  // as chat templates take them
  Json tools = {};                // [{"type": "function", "function": {…}}] or null
  Json template_variables = Json::object();
  std::string prompt = {};          // of a completion
  std::vector<int32_t> prompt_ids;  // of a completion, in place of a text
  // What the request sets of the sampling; the rest is the model's recommendation.
  std::optional<double> temperature, top_p, min_p, repeat_penalty;
  std::optional<int64_t> top_k, seed;
  std::optional<AdapterUses> adapters;  // in place of those that the model's name chooses
  GenerateOptions options;              // stop_texts, edits, logprobs; max_tokens 0: as many as there is room for
  Constraint constraint = {};
  int samples = 1;
  bool stream = false;
  bool tool_calls = true;  // whether calls in the answer are looked for
  bool past_end = false;   // goes on behind the model's end of the answer, for who measures
  bool must_call = false;  // the answer is a call of a tool
  std::string only_call;   // of this one; empty: of any
  bool parallel_calls = true;
};

struct Choice {  // of one sample, so far
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::vector<int32_t> tokens;
  std::vector<TokenLogprobs> logprobs;
  std::string finish;     // "stop", "length" or "tool_calls" once it has ended
  std::string stop_text;  // that ended it; empty: none did
};

struct Usage {
  size_t prompt = 0, completion = 0, cached = 0;
  Timing timing = {};  // of the last sample that ended
};

// Writes one answer. All calls come on the connection's strand, in this order.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual void start() {}  // the request was accepted; streams begin here
  // What came, and the choice with it.
  virtual void delta(int sample, const AnswerParts& parts, const Piece& piece, const Choice& choice) = 0;
  virtual void finish(int sample, const Choice& choice) = 0;
  virtual void end(const std::vector<Choice>& choices, const Usage& usage) = 0;
  virtual void error(const ApiError& error) = 0;  // before or after the stream began
};

struct Context {  // of one request
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
  EngineThread& engine;
  const bool log_text;
  // For the log; `model` is what the client called it, without what can be left out.
  std::string model = {}, finish = {}, text = {};
  Usage usage = {};
  std::function<void(const Context&)> on_end = {};  // must not throw
  Client client = {};
  AdapterUses adapters = {};  // that the model's name chooses
  ~Context() {
    if (on_end) on_end(*this);
  }
};
using ContextPtr = std::shared_ptr<Context>;

// Finds the model, makes the prompt, asks the engine and hands what comes to the wire, which is made when the model and
// the prompt are known to be good.
using MakeWire = std::function<std::unique_ptr<Wire>(const ServedModel& model)>;
void answer(ContextPtr context, Ask ask, MakeWire make_wire);
// The tokens of the prompt, and its text where it has one.
std::vector<int32_t> prompt_tokens(const ServedModel& model, const Ask& ask, std::string* text = nullptr);
// Calls back on the connection's strand; an unknown name or a model that cannot be loaded is an error.
using OnServed = std::function<void(const std::shared_ptr<const ServedModel>& model)>;
void with_model(ContextPtr context, const std::string& name, OnServed work);

// Runs work for the request on its connection's strand; what it throws is the answer.
void post(const ContextPtr& context, std::function<void()> work);
// What is being caught, as an answer: what the request caused is a 400, what it did not is a 500, or a 503 where trying
// again may help. Only inside a catch.
ApiError current_error();
// Sends an error in the words of the API that the path belongs to.
Json openai_error(const ApiError& error);
Json error_body(const std::string& path, const ApiError& error);
void send_error(Context& context, const ApiError& error);
void send_json(HttpReply& reply, const Json& json, int status = 200);

std::string random_id(std::string_view prefix);
int64_t unix_time();
std::string iso_time();

// Routes.
void openai_chat(ContextPtr context);
void openai_completions(ContextPtr context);
void openai_responses(ContextPtr context);
void openai_embeddings(ContextPtr context);
void anthropic_messages(ContextPtr context);
void anthropic_count_tokens(ContextPtr context);
void ollama_chat(ContextPtr context);
void ollama_generate(ContextPtr context);
void ollama_embed(ContextPtr context);
void ollama_show(ContextPtr context);
Json ollama_tags(const EngineThread& engine);

// A conversation in OpenAI's words to one that templates take.
Json openai_messages(const Json& messages, const std::string& where);
void read_tools(const Fields& fields, Ask& ask);
// The answer is to be a call; of the named tool, or of any where the name is empty.
void require_call(const Fields& fields, const std::string& name, Ask& ask);
// {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema"} with the schema in `schema_owner`, which is the
// format itself or its member "json_schema".
void read_format(const Fields& format, const Fields& schema_owner, Ask& ask);
// "lora": [{"id": 0, "scale": 0.5}], in the order of the command line; those that are not named are not used.
void read_adapters(const Fields& fields, Ask& ask);
// Fields that several formats share: temperature, top_p, … into the ask.
void read_sampling(const Fields& fields, Ask& ask);

}  // namespace doppler::serve
