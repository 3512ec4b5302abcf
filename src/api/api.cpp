// include/doppler/doppler.h over the engine. Whatever the engine throws becomes an Exception here.
#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/version.h"
#include "doppler/doppler.h"
#include "engine/embedding.h"
#include "engine/open_session.h"

namespace doppler {
inline namespace v1 {
namespace {

Problem problem_of(const Error& error) {
  return {static_cast<Code>(exit_code(error.code)), error.what, error.where, error.expected, error.got, error.todo};
}

std::string message_of(const Problem& p) {
  return Error{.what = p.what, .where = p.where, .expected = p.expected, .got = p.got, .todo = p.todo}.message();
}

// Runs `work`; what it throws leaves as Exception. Nothing of a caller's own (a callback's exception) may pass here.
template <class Work>
auto translated(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Failure& failure) {
    throw Exception(problem_of(failure.error));
  } catch (const std::bad_alloc&) {
    throw Exception({.code = Code::kMemory,
                     .what = "out of memory",
                     .todo = "Use a smaller context, a smaller model, or a machine with more"});
  } catch (const Exception&) {
    throw;
  } catch (const std::exception& error) {
    throw Exception({.code = Code::kInternal, .what = "something went wrong that should not", .got = error.what()});
  }
}

[[noreturn]] void refuse(std::string what, std::string where) {
  throw Exception({.code = Code::kUsage, .what = std::move(what), .where = std::move(where)});
}

SessionWishes wishes_of(const Options& options) {
  SessionWishes wishes{options.backend,    options.device,    options.context, options.threads,
                       options.gpu_memory, options.self_test, options.verify};
  for (const Lora& adapter : options.lora) wishes.adapters.push_back({adapter.path, adapter.scale});
  return wishes;
}

GenerateOptions generate_options(const LoadedModel& model, const AnswerOptions& o) {
  GenerateOptions options =
      answer_options(model, o.max_tokens, {o.temperature, o.top_k, o.top_p, o.min_p, o.repeat_penalty, o.seed}, o.stop);
  options.speculation = Speculation::kAuto;
  return options;
}

}  // namespace

Exception::Exception(Problem problem)
    : std::runtime_error(message_of(problem)), problem_(std::make_shared<const Problem>(std::move(problem))) {}
Exception::~Exception() = default;

std::string_view version() { return kVersion; }

struct Model::Impl {
  explicit Impl(LoadedModel m) : loaded(std::move(m)) {}
  LoadedModel loaded;
  ModelInfo info;
};

Model Model::open(const std::string& path) {
  return translated([&] {
    auto impl = std::make_shared<Impl>(LoadedModel::load(path));
    const LoadedModel& m = impl->loaded;
    impl->info = {.id = m.config.id,
                  .quantization = m.quantization,
                  .layers = m.config.layer_count(),
                  .vocabulary = m.config.vocab,
                  .max_context = m.config.max_context,
                  .bytes = m.artefact_bytes,
                  .has_tokenizer = m.tokenizer.has_value(),
                  .can_chat = m.config.makes_text() && m.tokenizer && m.chat_template && m.chat_template->present(),
                  .makes_text = m.config.makes_text(),
                  .embedding_width = m.config.embedding_width(),
                  .notes = m.notes};
    return Model(std::move(impl));
  });
}

const ModelInfo& Model::info() const { return impl_->info; }

std::vector<int32_t> Model::tokenize(std::string_view text, bool special) const {
  return translated([&] { return impl_->loaded.need_tokenizer().encode(text, special); });
}

std::string Model::detokenize(const std::vector<int32_t>& tokens) const {
  return translated([&] {
    const int vocabulary = impl_->info.vocabulary;
    if (std::any_of(tokens.begin(), tokens.end(), [&](int32_t id) { return id < 0 || id >= vocabulary; }))
      refuse("a token is not one of the model's", "tokens");
    return impl_->loaded.need_tokenizer().decode(tokens, /*skip_special=*/true);
  });
}

namespace {

// A session, and the model under it.
struct Running {
  Running(std::shared_ptr<const void> model_owner, const LoadedModel& m, const Options& options)
      : owner(std::move(model_owner)), model(m) {
    session = open_session(model, wishes_of(options), [&](const BackendChoice& choice, int) { backend = choice.name; });
  }

  Reply generate(const std::vector<int32_t>& prompt, const OnPiece& on_piece, const AnswerOptions& options) {
    const int vocabulary = model.config.vocab;
    if (prompt.empty()) refuse("the prompt is empty", "prompt");
    if (std::any_of(prompt.begin(), prompt.end(), [&](int32_t id) { return id < 0 || id >= vocabulary; }))
      refuse("a token is not one of the model's", "prompt");
    std::exception_ptr thrown;  // by the caller's own function; the session has to come to its end first
    const auto guarded = [&](std::string_view piece) {
      if (thrown) return false;
      try {
        return !on_piece || on_piece(piece);
      } catch (...) {
        thrown = std::current_exception();
        return false;
      }
    };
    Generation generation;
    try {
      generation = session->generate(prompt, generate_options(model, options), guarded);
    } catch (...) {
      session->invalidate();  // nothing half done is gone on from
      throw;
    }
    raise = thrown;
    const Timing& timing = generation.timing;
    return {generation.text,
            generation.token_ids,
            static_cast<Stop>(generation.stop_reason),
            static_cast<int>(prompt.size()),
            timing.prefilled,
            timing.prefill_ms,
            timing.decode_ms};
  }

  std::shared_ptr<const void> owner;
  const LoadedModel& model;
  std::string backend;
  std::unique_ptr<Session> session;
  std::exception_ptr raise;  // what the caller's function threw during the last answer

  // Once an answer is whole: lets the caller's own exception go on.
  void rethrow() {
    if (const std::exception_ptr thrown = std::exchange(raise, nullptr)) std::rethrow_exception(thrown);
  }
};

static_assert(static_cast<int>(Stop::kEnd) == static_cast<int>(StopReason::kEnd));
static_assert(static_cast<int>(Stop::kText) == static_cast<int>(StopReason::kStopText));
static_assert(static_cast<int>(Stop::kMaxTokens) == static_cast<int>(StopReason::kMaxTokens));
static_assert(static_cast<int>(Stop::kContextFull) == static_cast<int>(StopReason::kContextFull));
static_assert(static_cast<int>(Stop::kInterrupted) == static_cast<int>(StopReason::kInterrupted));

}  // namespace

struct Chat::Impl : Running {
  using Running::Running;
  std::string system;
  std::vector<ChatMessage> messages;

  std::vector<int32_t> prompt() const {
    Json all = Json::array();
    if (!system.empty()) all.push_back({{"role", "system"}, {"content", system}});
    for (const ChatMessage& m : messages) all.push_back({{"role", m.role}, {"content", m.content}});
    return model.need_tokenizer().encode(model.need_chat_template().render(all, Json(), true), false);
  }
};

Chat::Chat(Model model, const Options& options)
    : impl_(translated([&] {
        model.impl_->loaded.need_tokenizer();
        model.impl_->loaded.need_chat_template();
        return std::make_unique<Impl>(model.impl_, model.impl_->loaded, options);
      })) {}
Chat::~Chat() = default;
Chat::Chat(Chat&&) noexcept = default;
Chat& Chat::operator=(Chat&&) noexcept = default;

Reply Chat::say(const std::string& text, const OnPiece& on_piece, const AnswerOptions& options) {
  Impl& chat = *impl_;
  const size_t before = chat.messages.size();
  Reply reply;
  try {
    reply = translated([&] {
      chat.messages.push_back({"user", text});
      return chat.generate(chat.prompt(), on_piece, options);
    });
    chat.messages.push_back({"assistant", reply.text});
  } catch (...) {
    chat.messages.resize(before);
    throw;
  }
  chat.rethrow();
  return reply;
}

void Chat::set_system(std::string text) { impl_->system = std::move(text); }
const std::vector<ChatMessage>& Chat::messages() const { return impl_->messages; }
void Chat::clear() { impl_->messages.clear(); }
const std::string& Chat::backend() const { return impl_->backend; }

struct Completion::Impl : Running {
  using Running::Running;
};

Completion::Completion(Model model, const Options& options)
    : impl_(translated([&] { return std::make_unique<Impl>(model.impl_, model.impl_->loaded, options); })) {}
Completion::~Completion() = default;
Completion::Completion(Completion&&) noexcept = default;
Completion& Completion::operator=(Completion&&) noexcept = default;

Reply Completion::run(const std::string& prompt, const OnPiece& on_piece, const AnswerOptions& options) {
  return run(translated([&] { return impl_->model.need_tokenizer().encode(prompt, true); }), on_piece, options);
}

Reply Completion::run(const std::vector<int32_t>& prompt, const OnPiece& on_piece, const AnswerOptions& options) {
  Reply reply = translated([&] { return impl_->generate(prompt, on_piece, options); });
  impl_->rethrow();
  return reply;
}

const std::string& Completion::backend() const { return impl_->backend; }

struct Embedder::Impl {
  Impl(std::shared_ptr<const void> model_owner, const LoadedModel& m, const Options& options)
      : owner(std::move(model_owner)), head(m), context(context_of(m, wishes_of(options))) {
    executor = open_executor(m, wishes_of(options), [&](const BackendChoice& choice, int) { backend = choice.name; });
  }
  std::shared_ptr<const void> owner;
  EmbeddingHead head;
  int context;
  std::string backend;
  std::unique_ptr<Executor> executor;
};

Embedder::Embedder(Model model, const Options& options)
    : impl_(translated([&] {
        model.impl_->loaded.need_tokenizer();
        return std::make_unique<Impl>(model.impl_, model.impl_->loaded, options);
      })) {}
Embedder::~Embedder() = default;
Embedder::Embedder(Embedder&&) noexcept = default;
Embedder& Embedder::operator=(Embedder&&) noexcept = default;

std::vector<float> Embedder::embed(const std::string& text, const EmbedOptions& options) {
  return embed(std::vector<std::string>{text}, options).front();
}

std::vector<std::vector<float>> Embedder::embed(const std::vector<std::string>& texts, const EmbedOptions& options) {
  return translated([&] {
    impl_->head.check_dimensions(options.dimensions);
    std::vector<std::vector<int32_t>> tokens;
    for (const std::string& text : texts) {
      tokens.push_back(
          tokens_to_embed(impl_->head.model(), text, {options.prompt_name, impl_->context, options.truncate}));
    }
    return embed_texts(impl_->head, *impl_->executor, std::move(tokens), options.dimensions);
  });
}

const std::string& Embedder::backend() const { return impl_->backend; }

}  // namespace v1
}  // namespace doppler
