// include/doppler/doppler_c.h over doppler.h: handles are looked up in a table, and what is thrown becomes an error.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "doppler/doppler.h"
#include "doppler/doppler_c.h"

using doppler::AnswerOptions;
using doppler::Chat;
using doppler::Code;
using doppler::Completion;
using doppler::Embedder;
using doppler::EmbedOptions;
using doppler::Exception;
using doppler::Model;
using doppler::Options;
using doppler::Problem;
using doppler::Reply;

struct doppler_error {
  Problem problem;
  std::string message;
};

struct doppler_reply {
  Reply reply;
};

namespace {

struct OpenModel {
  explicit OpenModel(Model m) : model(std::move(m)) {
    for (const std::string& note : model.info().notes) notes.push_back(note.c_str());
  }
  Model model;
  std::vector<const char*> notes;
  std::atomic<bool> closed = false;
};

// Chat, Completion or Embedder: one call at a time, and none once the model is closed.
template <class Kind>
struct OpenAnswerer {
  OpenAnswerer(std::shared_ptr<OpenModel> m, Kind k) : model(std::move(m)), answerer(std::move(k)) {}
  std::shared_ptr<OpenModel> model;
  Kind answerer;
  std::atomic<bool> busy = false;
};
using OpenChat = OpenAnswerer<Chat>;
using OpenCompletion = OpenAnswerer<Completion>;
using OpenEmbedder = OpenAnswerer<Embedder>;

[[noreturn]] void refuse(std::string what, std::string where) {
  throw Exception({.code = Code::kUsage, .what = std::move(what), .where = std::move(where)});
}

// The open handles of one kind. Numbers are counted up over all kinds and never given twice, so a handle that was
// closed or is of another kind is not found.
std::atomic<uintptr_t> next_number = 1;

template <class Open, class Handle>
class Table {
 public:
  Handle* add(std::shared_ptr<Open> open) {
    const std::lock_guard lock(mutex_);
    const uintptr_t number = next_number.fetch_add(16);  // a debugger's eye takes these for pointers, and finds none
    open_.emplace(number, std::move(open));
    return reinterpret_cast<Handle*>(number);
  }
  std::shared_ptr<Open> find(const Handle* handle, const char* name) {
    const std::lock_guard lock(mutex_);
    const auto it = open_.find(reinterpret_cast<uintptr_t>(handle));
    if (it == open_.end()) refuse("this handle is not open", name);
    return it->second;
  }
  std::shared_ptr<Open> take(const Handle* handle) noexcept {
    const std::lock_guard lock(mutex_);
    const auto it = open_.find(reinterpret_cast<uintptr_t>(handle));
    if (it == open_.end()) return nullptr;
    std::shared_ptr<Open> open = std::move(it->second);
    open_.erase(it);
    return open;
  }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<Open>> open_;
};

Table<OpenModel, doppler_model>& models() {
  static auto* table = new Table<OpenModel, doppler_model>;  // never destroyed: threads may outlive main()
  return *table;
}
Table<OpenChat, doppler_chat>& chats() {
  static auto* table = new Table<OpenChat, doppler_chat>;
  return *table;
}
Table<OpenCompletion, doppler_completion>& completions() {
  static auto* table = new Table<OpenCompletion, doppler_completion>;
  return *table;
}

Table<OpenEmbedder, doppler_embedder>& embedders() {
  static auto* table = new Table<OpenEmbedder, doppler_embedder>;
  return *table;
}

// Marks a chat, completion or embedder as busy.
class Busy {
 public:
  Busy(std::atomic<bool>& busy, const OpenModel& model, const char* name) : busy_(busy) {
    if (model.closed) refuse("its model is closed", name);
    if (busy_.exchange(true)) refuse("it is busy with another call", name);
  }
  ~Busy() { busy_ = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& busy_;
};

doppler_code report(Problem problem, std::string message, doppler_error** error) noexcept {
  const auto code = static_cast<doppler_code>(problem.code);
  if (error) *error = new (std::nothrow) doppler_error{std::move(problem), std::move(message)};
  return code;
}

// Runs `work`, and lets nothing out of it.
template <class Work>
doppler_code guarded(doppler_error** error, const Work& work) noexcept {
  if (error) *error = nullptr;
  try {
    work();
    return DOPPLER_OK;
  } catch (const Exception& exception) {
    return report(exception.problem(), exception.what(), error);
  } catch (const std::bad_alloc&) {
    return report({.code = Code::kMemory, .what = "out of memory"}, "out of memory", error);
  } catch (const std::exception& exception) {
    return report({.code = Code::kInternal, .what = exception.what()}, exception.what(), error);
  } catch (...) {
    return report({.code = Code::kInternal, .what = "something unknown was thrown"}, "something unknown was thrown",
                  error);
  }
}

const char* need(const char* text, const char* name) {
  if (!text) refuse("a text is missing", name);
  return text;
}

template <class T>
T& need(T* out, const char* name) {
  if (!out) refuse("there is no place for the result", name);
  *out = T{};
  return *out;
}

// What the caller's structure has of ours; the rest keeps its defaults.
template <class T>
T known(const T* given, T defaults, const char* name) {
  if (!given) return defaults;
  if (given->size < sizeof(size_t) || given->size > 4096) refuse("the structure's size is not set", name);
  std::memcpy(&defaults, given, std::min(given->size, sizeof(T)));
  return defaults;
}

Options options_of(const doppler_options* given) {
  const doppler_options o = known<doppler_options>(given, DOPPLER_OPTIONS_INIT, "options");
  Options options;
  if (o.backend) options.backend = o.backend;
  options.device = o.device;
  options.context = o.context;
  options.threads = o.threads;
  options.gpu_memory = o.gpu_memory;
  options.self_test = o.self_test != 0;
  options.verify = o.verify != 0;
  if (o.lora_count > 0 && !o.lora) refuse("a list is missing", "options.lora");
  for (size_t i = 0; i < o.lora_count; ++i)
    options.lora.push_back({need(o.lora[i].path, "options.lora"), o.lora[i].scale});
  return options;
}

AnswerOptions answer_options_of(const doppler_answer_options* given) {
  const doppler_answer_options o = known<doppler_answer_options>(given, DOPPLER_ANSWER_OPTIONS_INIT, "options");
  AnswerOptions options;
  options.max_tokens = o.max_tokens;
  options.temperature = o.temperature;
  if (o.top_k != -1) options.top_k = o.top_k;
  if (o.top_p != -1) options.top_p = o.top_p;
  if (o.min_p != -1) options.min_p = o.min_p;
  if (o.repeat_penalty != -1) options.repeat_penalty = o.repeat_penalty;
  if (o.has_seed) options.seed = o.seed;
  if (o.stop_count > 0 && !o.stop) refuse("a text is missing", "options.stop");
  for (size_t i = 0; i < o.stop_count; ++i) options.stop.emplace_back(need(o.stop[i], "options.stop"));
  return options;
}

doppler::OnPiece on_piece_of(doppler_on_piece on_piece, void* user) {
  if (!on_piece) return {};
  return [on_piece, user, zero_ended = std::string()](std::string_view piece) mutable {
    zero_ended.assign(piece);
    return on_piece(zero_ended.c_str(), zero_ended.size(), user) != 0;
  };
}

void give(Reply reply, doppler_reply** out) {
  if (out) *out = new doppler_reply{std::move(reply)};
}

}  // namespace

const char* doppler_version(void) { return doppler::version().data(); }

doppler_code doppler_error_code(const doppler_error* error) {
  return error ? static_cast<doppler_code>(error->problem.code) : DOPPLER_OK;
}
const char* doppler_error_message(const doppler_error* error) { return error ? error->message.c_str() : ""; }
const char* doppler_error_what(const doppler_error* error) { return error ? error->problem.what.c_str() : ""; }
const char* doppler_error_where(const doppler_error* error) { return error ? error->problem.where.c_str() : ""; }
const char* doppler_error_expected(const doppler_error* error) { return error ? error->problem.expected.c_str() : ""; }
const char* doppler_error_got(const doppler_error* error) { return error ? error->problem.got.c_str() : ""; }
const char* doppler_error_todo(const doppler_error* error) { return error ? error->problem.todo.c_str() : ""; }
void doppler_error_free(doppler_error* error) { delete error; }

doppler_code doppler_model_open(const char* path, doppler_model** model, doppler_error** error) {
  return guarded(error, [&] {
    doppler_model*& out = need(model, "model");
    out = models().add(std::make_shared<OpenModel>(Model::open(need(path, "path"))));
  });
}

void doppler_model_close(doppler_model* model) {
  if (const std::shared_ptr<OpenModel> open = models().take(model)) open->closed = true;
}

doppler_code doppler_model_get_info(doppler_model* model, doppler_model_info* info, doppler_error** error) {
  return guarded(error, [&] {
    const std::shared_ptr<OpenModel> open = models().find(model, "model");
    if (!info || info->size < sizeof(size_t) || info->size > 4096) refuse("the structure's size is not set", "info");
    const doppler::ModelInfo& from = open->model.info();
    const doppler_model_info all = {
        info->size,         from.id.c_str(), from.quantization.c_str(), from.layers,   from.vocabulary,
        from.max_context,   from.bytes,      from.has_tokenizer,        from.can_chat, open->notes.size(),
        open->notes.data(), from.makes_text, from.embedding_width};
    std::memcpy(info, &all, std::min(info->size, sizeof all));
  });
}

doppler_code doppler_model_tokenize(doppler_model* model, const char* text, int32_t special, int32_t* tokens,
                                    size_t capacity, size_t* count, doppler_error** error) {
  return guarded(error, [&] {
    size_t& all = need(count, "count");
    const std::vector<int32_t> ids = models().find(model, "model")->model.tokenize(need(text, "text"), special != 0);
    if (capacity > 0 && !tokens) refuse("there is no place for the result", "tokens");
    std::copy_n(ids.begin(), std::min(capacity, ids.size()), tokens);
    all = ids.size();
  });
}

doppler_code doppler_chat_open(doppler_model* model, const doppler_options* options, doppler_chat** chat,
                               doppler_error** error) {
  return guarded(error, [&] {
    doppler_chat*& out = need(chat, "chat");
    const std::shared_ptr<OpenModel> open = models().find(model, "model");
    out = chats().add(std::make_shared<OpenChat>(open, Chat(open->model, options_of(options))));
  });
}

void doppler_chat_close(doppler_chat* chat) { chats().take(chat); }

doppler_code doppler_chat_set_system(doppler_chat* chat, const char* text, doppler_error** error) {
  return guarded(error, [&] {
    const std::shared_ptr<OpenChat> open = chats().find(chat, "chat");
    const Busy busy(open->busy, *open->model, "chat");
    open->answerer.set_system(need(text, "text"));
  });
}

doppler_code doppler_chat_clear(doppler_chat* chat, doppler_error** error) {
  return guarded(error, [&] {
    const std::shared_ptr<OpenChat> open = chats().find(chat, "chat");
    const Busy busy(open->busy, *open->model, "chat");
    open->answerer.clear();
  });
}

doppler_code doppler_chat_say(doppler_chat* chat, const char* text, const doppler_answer_options* options,
                              doppler_on_piece on_piece, void* user, doppler_reply** reply, doppler_error** error) {
  return guarded(error, [&] {
    if (reply) *reply = nullptr;
    const std::shared_ptr<OpenChat> open = chats().find(chat, "chat");
    const Busy busy(open->busy, *open->model, "chat");
    give(open->answerer.say(need(text, "text"), on_piece_of(on_piece, user), answer_options_of(options)), reply);
  });
}

doppler_code doppler_completion_open(doppler_model* model, const doppler_options* options,
                                     doppler_completion** completion, doppler_error** error) {
  return guarded(error, [&] {
    doppler_completion*& out = need(completion, "completion");
    const std::shared_ptr<OpenModel> open = models().find(model, "model");
    out = completions().add(std::make_shared<OpenCompletion>(open, Completion(open->model, options_of(options))));
  });
}

void doppler_completion_close(doppler_completion* completion) { completions().take(completion); }

namespace {

// prompt() is what the answer goes on from: text, or tokens.
template <class Prompt>
doppler_code run_completion(doppler_completion* completion, const Prompt& prompt, const doppler_answer_options* options,
                            doppler_on_piece on_piece, void* user, doppler_reply** reply, doppler_error** error) {
  return guarded(error, [&] {
    if (reply) *reply = nullptr;
    const std::shared_ptr<OpenCompletion> open = completions().find(completion, "completion");
    const Busy busy(open->busy, *open->model, "completion");
    const auto given = prompt();
    give(open->answerer.run(given, on_piece_of(on_piece, user), answer_options_of(options)), reply);
  });
}

}  // namespace

doppler_code doppler_completion_run(doppler_completion* completion, const char* prompt,
                                    const doppler_answer_options* options, doppler_on_piece on_piece, void* user,
                                    doppler_reply** reply, doppler_error** error) {
  const auto text = [&] { return std::string(need(prompt, "prompt")); };
  return run_completion(completion, text, options, on_piece, user, reply, error);
}

doppler_code doppler_completion_run_tokens(doppler_completion* completion, const int32_t* tokens, size_t count,
                                           const doppler_answer_options* options, doppler_on_piece on_piece, void* user,
                                           doppler_reply** reply, doppler_error** error) {
  const auto ids = [&] {
    if (!tokens && count > 0) refuse("the tokens are missing", "tokens");
    return std::vector<int32_t>(tokens, tokens + count);
  };
  return run_completion(completion, ids, options, on_piece, user, reply, error);
}

doppler_code doppler_embedder_open(doppler_model* model, const doppler_options* options, doppler_embedder** embedder,
                                   doppler_error** error) {
  return guarded(error, [&] {
    doppler_embedder*& out = need(embedder, "embedder");
    const std::shared_ptr<OpenModel> open = models().find(model, "model");
    out = embedders().add(std::make_shared<OpenEmbedder>(open, Embedder(open->model, options_of(options))));
  });
}

void doppler_embedder_close(doppler_embedder* embedder) { embedders().take(embedder); }

doppler_code doppler_embedder_embed(doppler_embedder* embedder, const char* const* texts, size_t count,
                                    const doppler_embed_options* options, float* vectors, size_t capacity,
                                    size_t* width, doppler_error** error) {
  return guarded(error, [&] {
    size_t& each = need(width, "width");
    const std::shared_ptr<OpenEmbedder> open = embedders().find(embedder, "embedder");
    const Busy busy(open->busy, *open->model, "embedder");
    const auto o = known<doppler_embed_options>(options, DOPPLER_EMBED_OPTIONS_INIT, "options");
    EmbedOptions wishes{.dimensions = o.dimensions, .truncate = o.truncate != 0};
    if (o.prompt_name) wishes.prompt_name = o.prompt_name;
    if (count > 0 && !texts) refuse("a text is missing", "texts");
    std::vector<std::string> given;
    for (size_t i = 0; i < count; ++i) given.emplace_back(need(texts[i], "texts"));
    const int all = open->model->model.info().embedding_width;
    const auto wanted = static_cast<size_t>(o.dimensions > 0 ? o.dimensions : all);
    if (count > 0 && (!vectors || capacity / wanted < count)) refuse("there is no place for the result", "vectors");
    const std::vector<std::vector<float>> made = open->answerer.embed(given, wishes);
    for (size_t i = 0; i < made.size(); ++i) std::copy(made[i].begin(), made[i].end(), vectors + i * wanted);
    each = wanted;
  });
}

const char* doppler_reply_text(const doppler_reply* reply) { return reply ? reply->reply.text.c_str() : ""; }
size_t doppler_reply_length(const doppler_reply* reply) { return reply ? reply->reply.text.size() : 0; }
const int32_t* doppler_reply_tokens(const doppler_reply* reply) { return reply ? reply->reply.tokens.data() : nullptr; }
size_t doppler_reply_token_count(const doppler_reply* reply) { return reply ? reply->reply.tokens.size() : 0; }
doppler_stop doppler_reply_stop(const doppler_reply* reply) {
  return reply ? static_cast<doppler_stop>(reply->reply.stop) : DOPPLER_STOP_END;
}
int32_t doppler_reply_prompt_tokens(const doppler_reply* reply) { return reply ? reply->reply.prompt_tokens : 0; }
double doppler_reply_prompt_ms(const doppler_reply* reply) { return reply ? reply->reply.prompt_ms : 0; }
double doppler_reply_answer_ms(const doppler_reply* reply) { return reply ? reply->reply.answer_ms : 0; }
void doppler_reply_free(doppler_reply* reply) { delete reply; }
