#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "debug/report.h"
#include "engine/backend.h"
#include "engine/session.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::vector<std::string> words;  // [MODEL] [PROMPT]
  std::string prompt, prompt_file, system, backend = "auto";
  std::vector<int32_t> prompt_ids;
  std::vector<std::string> stop_texts;
  Sampling sampling;
  bool raw = false, chat = false, json = false, no_self_test = false;
  int max_tokens = 512, context = 0, threads = 0, device = -1, decode_batch = 0;
  uint64_t gpu_memory = 0;
  // Which options were given: an option left alone takes the model's recommendation, or a random seed.
  const CLI::Option *top_k = nullptr, *top_p = nullptr, *min_p = nullptr, *repeat_penalty = nullptr, *seed = nullptr,
                    *prompt_given = nullptr, *prompt_file_given = nullptr, *prompt_ids_given = nullptr;
};

std::atomic<bool> interrupted{false};
void on_interrupt(int) { interrupted = true; }

// Ctrl-C sets a flag instead of ending the program. Without SA_RESTART, so that it also ends a wait for a line.
class InterruptGuard {
 public:
  InterruptGuard() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

bool is_path(const std::string& word) {
  std::error_code ignored;
  return std::filesystem::exists(word, ignored);
}

// Sorts the words into model and prompt: two are both, one is the model if something of that name exists.
void take_words(Arguments& a, std::string& model, bool& has_prompt) {
  if (a.words.size() == 2 || (a.words.size() == 1 && is_path(a.words[0]))) model = a.words[0];
  const bool worded = a.words.size() == 2 || (a.words.size() == 1 && model.empty());
  if (worded) a.prompt = a.words.back();
  const int given =
      worded + (a.prompt_given->count() > 0) + (a.prompt_file_given->count() > 0) + (a.prompt_ids_given->count() > 0);
  if (given > 1)
    fail({.code = ErrorCode::kUsage,
          .what = "the prompt was given more than once",
          .where = "run",
          .expected = "one prompt"});
  if (a.prompt_file_given->count() > 0) {
    a.prompt = read_text_file(a.prompt_file == "-" ? "/dev/stdin" : a.prompt_file);
  }
  has_prompt = given == 1;
}

void resolve_sampling(Arguments& a, const Sampling& recommended) {
  if (a.sampling.temperature > 0) {
    if (a.top_k->count() == 0) a.sampling.top_k = recommended.top_k;
    if (a.top_p->count() == 0) a.sampling.top_p = recommended.top_p;
    if (a.min_p->count() == 0) a.sampling.min_p = recommended.min_p;
    if (a.repeat_penalty->count() == 0) a.sampling.repeat_penalty = recommended.repeat_penalty;
    if (a.seed->count() == 0) a.sampling.seed = std::random_device{}();
  }
  check(a.sampling);
}

GenerateOptions generate_options(const Arguments& a, const LoadedModel& model) {
  if (a.max_tokens < 1)
    fail({.code = ErrorCode::kUsage,
          .what = "--max-tokens must be at least 1",
          .where = "run",
          .got = std::to_string(a.max_tokens)});
  return {.max_tokens = a.max_tokens,
          .sampling = a.sampling,
          .stop_texts = a.stop_texts,
          .end_ids = model.config.eos_ids,
          .decode_batch = a.decode_batch};
}

Json opening_messages(const Arguments& a) {
  Json messages = Json::array();
  if (!a.system.empty()) messages.push_back({{"role", "system"}, {"content", a.system}});
  return messages;
}

bool has_template(const LoadedModel& model) { return model.chat_template && model.chat_template->present(); }

std::vector<int32_t> prompt_tokens(const Arguments& a, const LoadedModel& model) {
  if (!a.prompt_ids.empty()) return a.prompt_ids;
  const Tokenizer& tokenizer = model.need_tokenizer();
  if (a.raw) return tokenizer.encode(a.prompt, true);
  if (!has_template(model)) {
    fmt::print(stderr, "doppler: this model has no chat template; the prompt goes in as it is\n");
    return tokenizer.encode(a.prompt, true);
  }
  Json messages = opening_messages(a);
  messages.push_back({{"role", "user"}, {"content", a.prompt}});
  return tokenizer.encode(model.chat_template->render(messages, Json(), true), false);
}

bool print_piece(std::string_view piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
  return !interrupted;
}

void print_speed(const Generation& generation, std::string_view backend) {
  if (!info_enabled()) return;
  const Timing& t = generation.timing;
  fmt::print(stderr, "\033[2m[{}: {} prompt tokens at {:.0f}/s, {} tokens at {:.1f}/s, stopped by {}]\033[0m\n",
             backend, t.prefilled, t.prefill_tok_s(), generation.token_ids.size(), t.decode_tok_s(),
             name_of(generation.stop_reason));
}

void answer_once(Arguments& a, const LoadedModel& model, Session& session, double load_ms) {
  const InterruptGuard guard;
  const std::vector<int32_t> prompt = prompt_tokens(a, model);
  const auto on_piece = a.json ? OnPiece([](std::string_view) { return !interrupted.load(); }) : OnPiece(print_piece);
  const Generation generation = session.generate(prompt, generate_options(a, model), on_piece);
  const std::string backend(session.executor().name());
  if (!a.json) {
    if (model.tokenizer) {
      fmt::print("\n");
    } else {
      fmt::print("{}\n", fmt::join(generation.token_ids, ","));
    }
    return print_speed(generation, backend);
  }
  const Timing& t = generation.timing;
  const Json result = {{"text", generation.text},
                       {"prompt_token_ids", prompt},
                       {"token_ids", generation.token_ids},
                       {"stop_reason", name_of(generation.stop_reason)},
                       {"timing",
                        {{"load_ms", load_ms},
                         {"prefill_ms", t.prefill_ms},
                         {"first_token_ms", t.first_token_ms},
                         {"decode_ms", t.decode_ms},
                         {"prefill_tok_s", t.prefill_tok_s()},
                         {"decode_tok_s", t.decode_tok_s()}}},
                       {"backend", backend},
                       {"seed", a.sampling.seed}};
  fmt::print("{}\n", result.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// A line from the terminal; false at its end (Ctrl-D). Ctrl-C gives an empty line.
bool read_line(std::string& line) {
  char* buffer = nullptr;
  size_t capacity = 0;
  const ssize_t length = ::getline(&buffer, &capacity, stdin);
  line.assign(buffer ? buffer : "", length > 0 ? static_cast<size_t>(length) : 0);
  std::free(buffer);
  if (length < 0 && interrupted.exchange(false)) {
    std::clearerr(stdin);
    fmt::print("\n(Ctrl-D leaves)\n");
    line.clear();
    return true;
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return length >= 0;
}

void chat(Arguments& a, const LoadedModel& model, Session& session) {
  const Tokenizer& tokenizer = model.need_tokenizer();
  if (!has_template(model)) {
    fail({.code = ErrorCode::kUsage,
          .what = "this model has no chat template, so it cannot chat",
          .where = model.config.id,
          .todo = "Use doppler run --raw with a prompt"});
  }
  const InterruptGuard guard;
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) fmt::print("Chatting with {}. Ctrl-C stops an answer, Ctrl-D leaves.\n", model.config.id);
  Json messages = opening_messages(a);
  std::string line = a.prompt;
  for (bool first = true;; first = false) {
    if (!first || line.empty()) {
      if (terminal) fmt::print("\033[1m> \033[0m");
      std::fflush(stdout);
      if (!read_line(line)) break;
      if (line.empty()) continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    const std::string text = model.chat_template->render(messages, Json(), true);
    interrupted = false;
    const Generation generation =
        session.generate(tokenizer.encode(text, false), generate_options(a, model), print_piece);
    interrupted = false;
    fmt::print("\n");
    print_speed(generation, session.executor().name());
    messages.push_back({{"role", "assistant"}, {"content", generation.text}});
  }
  if (terminal) fmt::print("\n");
}

// Options that contradict each other are refused: one of them would have no effect.
void check_together(const Arguments& a) {
  const auto refuse = [](bool both, const char* first, const char* second) {
    if (both) {
      fail({.code = ErrorCode::kUsage,
            .what = fmt::format("{} and {} do not go together", first, second),
            .where = "run",
            .todo = "Leave one of them out"});
    }
  };
  const bool ids = a.prompt_ids_given->count() > 0;
  refuse(a.chat && a.json, "--chat", "--json");
  refuse(a.chat && a.raw, "--chat", "--raw");
  refuse(a.chat && ids, "--chat", "--prompt-ids");
  refuse(!a.system.empty() && a.raw, "--system", "--raw");
  refuse(!a.system.empty() && ids, "--system", "--prompt-ids");
}

void run(Arguments a) {
  check_together(a);
  std::string path;
  bool has_prompt = false;
  take_words(a, path, has_prompt);
  if (!has_prompt && !a.chat) {
    fail({.code = ErrorCode::kUsage,
          .what = "there is no prompt",
          .where = "run",
          .todo = "Give one in quotes, or use --chat"});
  }
  const auto start = Clock::now();
  const LoadedModel model = open_model(path);
  resolve_sampling(a, model.recommended);
  const int context = a.context > 0 ? a.context : default_context(model.config);
  if (context > model.config.max_context) {
    fmt::print(stderr, "doppler: the model was made for {} tokens of context; with {} it may lose the thread\n",
               model.config.max_context, context);
  }
  const BackendChoice backend = choose_backend(a.backend, a.device);
  if (log_level() != LogLevel::kSilent) {
    const bool terminal = isatty(STDERR_FILENO) != 0;
    fmt::print(stderr, "{}[{} on {}: {}]{}\n", terminal ? "\033[2m" : "", model.config.id, backend.name, backend.about,
               terminal ? "\033[0m" : "");
  }
  Session session(
      make_executor(model, backend.name,
                    {.context = context, .threads = a.threads, .device = a.device, .gpu_memory = a.gpu_memory}),
      model.tokenizer ? &*model.tokenizer : nullptr, context);
  if (backend.name == "webgpu" && !a.no_self_test) self_test(session.executor(), model);
  const TapSteps traced = traced_steps(model.plan);
  if (!traced.empty()) session.executor().set_tap_at(trace_tap(), traced);
  const double load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  if (a.chat) return chat(a, model, session);
  answer_once(a, model, session, load_ms);
}

}  // namespace

void add_run(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("run", "Generate text with a model");
  verb->add_option("words", a->words, "[MODEL] [PROMPT]: a single word is the model if something of that name exists")
      ->expected(0, 2)
      ->option_text("[MODEL] [PROMPT]");
  a->prompt_given = verb->add_option("--prompt", a->prompt, "The prompt");
  a->prompt_file_given =
      verb->add_option("--prompt-file", a->prompt_file, "Read the prompt from a file (- for standard input)");
  a->prompt_ids_given = verb->add_option("--prompt-ids", a->prompt_ids, "The prompt as token ids: 2,5,9")
                            ->delimiter(',')
                            ->allow_extra_args(false);
  verb->add_option("--system", a->system, "A system message before the conversation");
  verb->add_flag("--raw", a->raw, "The prompt goes in as it is, without the model's chat template");
  verb->add_flag("--chat", a->chat, "Talk: the history is kept, Ctrl-C stops an answer");
  verb->add_option("--max-tokens", a->max_tokens, "Stop after this many tokens")->capture_default_str();
  verb->add_option("--temperature", a->sampling.temperature, "0 always takes the likeliest token")
      ->capture_default_str();
  a->top_k = verb->add_option("--top-k", a->sampling.top_k, "Draw from the k likeliest (default: the model's advice)");
  a->top_p = verb->add_option("--top-p", a->sampling.top_p,
                              "Draw from the likeliest that make up p (default: the model's advice)");
  a->min_p = verb->add_option("--min-p", a->sampling.min_p,
                              "Draw from those at least this fraction as likely as the likeliest");
  a->repeat_penalty = verb->add_option("--repeat-penalty", a->sampling.repeat_penalty,
                                       "Make tokens of the text so far less likely; 1 is off");
  a->seed = verb->add_option("--seed", a->sampling.seed, "Same seed, same text (default: random)");
  verb->add_option("--stop", a->stop_texts, "Stop before this text appears (repeatable)")->expected(1)->take_all();
  verb->add_option("--context", a->context, "Tokens to make room for (default: the model's own, at most 4096)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--threads", a->threads, "Threads (default: one per core)")->check(CLI::Range(1, 1024));
  verb->add_option("--backend", a->backend, "auto, webgpu, cpu or ref")->capture_default_str();
  verb->add_option("--device", a->device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(*verb, a->gpu_memory);
  verb->add_option("--decode-batch", a->decode_batch,
                   "Tokens a GPU chooses in one go (default: as many as take a twentieth of a second)")
      ->check(CLI::Range(1, 64));
  verb->add_flag("--no-self-test", a->no_self_test, "Do not compare the GPU with the CPU before the first token");
  verb->add_flag("--json", a->json, "Print one JSON object when done");
  verb->footer(
      "Examples:\n  doppler run \"Tell me a story about a brave cat.\"\n"
      "  doppler run models/tiny --raw \"The color of the sky is\" --max-tokens 4\n"
      "  doppler run --chat --temperature 0.7");
  verb->callback([a] { run(*a); });
}

}  // namespace doppler
