#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/say.h"
#include "cli/chat.h"
#include "cli/interrupt.h"
#include "cli/open_model.h"
#include "cli/other_rank.h"
#include "cli/sandboxed.h"
#include "cli/verbs.h"
#include "engine/open_session.h"
#include "engine/watchdog.h"
#include "grammar/grammar.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;

struct RunArguments {
  std::vector<std::string> words;  // [MODEL] [PROMPT]
  std::string prompt, prompt_file, system, backend = "auto", speculate = "auto", kernel, watchdog = "off";
  std::string grammar, json_schema;
  bool json_object = false;
  std::vector<int32_t> prompt_ids;
  std::vector<std::string> stop_texts, adapters;
  Sampling sampling;
  bool raw = false, chat = false, json = false, no_self_test = false, no_verify = false, sandbox = false;
  int max_tokens = 512, context = 0, threads = 0, device = -1, decode_batch = 0;
  uint64_t gpu_memory = 0;
  // Which options were given: an option left alone takes the model's recommendation, or a random seed.
  std::shared_ptr<AnswerWatch> watch;  // of the session that runs
  Option top_k, top_p, min_p, repeat_penalty, seed, prompt_given, prompt_file_given, prompt_ids_given;
};

bool is_model(const std::string& word) { return is_remote_name(word) || file_exists(word); }

// Sorts the words into model and prompt: two are both, one is the model if something of that name exists.
void take_words(RunArguments& a, std::string& model, bool& has_prompt) {
  if (a.words.size() == 2 || (a.words.size() == 1 && is_model(a.words[0]))) model = a.words[0];
  const bool worded = a.words.size() == 2 || (a.words.size() == 1 && model.empty());
  if (worded) a.prompt = a.words.back();
  const int given = worded + a.prompt_given.given() + a.prompt_file_given.given() + a.prompt_ids_given.given();
  if (given > 1)
    fail({.code = ErrorCode::kUsage,
          .what = "the prompt was given more than once",
          .where = "run",
          .expected = "one prompt"});
  if (a.prompt_file_given.given()) {
    a.prompt = read_input(a.prompt_file == "-" ? "/dev/stdin" : a.prompt_file);
  }
  has_prompt = given == 1;
}

// --speculate is one of its words, or a draft model.
bool names_draft(const RunArguments& a) {
  return std::find(std::begin(kSpeculationNames), std::end(kSpeculationNames), a.speculate) ==
         std::end(kSpeculationNames);
}

// A guess means something only where both models mean the same by a token.
void check_draft(const LoadedModel& draft, const LoadedModel& model, const std::string& name) {
  const auto refuse = [&](const std::string& expected, const std::string& got) {
    fail({.code = ErrorCode::kUsage,
          .what = "the draft model has another vocabulary",
          .where = "--speculate " + name,
          .expected = expected,
          .got = got,
          .todo = "Use a smaller model of the same family, or --speculate ngram"});
  };
  if (draft.config.vocab != model.config.vocab)
    refuse(fmt::format("{} tokens", model.config.vocab), fmt::format("{}", draft.config.vocab));
  if (!draft.tokenizer || !model.tokenizer) return;
  for (int32_t id = 0; id < model.config.vocab; ++id) {
    const std::string_view expected = model.tokenizer->piece(id), got = draft.tokenizer->piece(id);
    if (expected != got) refuse(fmt::format("token {} to be \"{}\"", id, expected), fmt::format("\"{}\"", got));
  }
}

std::shared_ptr<const TokenGrammar> grammar_of(const RunArguments& a, const LoadedModel& model) {
  if (a.grammar.empty() && a.json_schema.empty() && !a.json_object) return nullptr;
  const auto trie = TokenTrie::make(model.need_tokenizer());
  if (!a.grammar.empty()) return grammar_from_gbnf(read_input(a.grammar), a.grammar, trie);
  if (a.json_object) return grammar_of_json_object(trie);
  const bool inline_schema = a.json_schema.find('{') < a.json_schema.find_first_not_of(" \t\n{");
  return inline_schema ? grammar_from_json_schema(a.json_schema, "--json-schema", trie)
                       : grammar_from_json_schema(read_input(a.json_schema), a.json_schema, trie);
}

GenerateOptions generate_options(const RunArguments& a, const LoadedModel& model) {
  const auto wish = [](const Option& option, auto value) {
    return option.given() ? std::optional(value) : std::nullopt;
  };
  const SamplingWishes wishes{a.sampling.temperature,
                              wish(a.top_k, a.sampling.top_k),
                              wish(a.top_p, a.sampling.top_p),
                              wish(a.min_p, a.sampling.min_p),
                              wish(a.repeat_penalty, a.sampling.repeat_penalty),
                              wish(a.seed, a.sampling.seed)};
  GenerateOptions options = answer_options(model, a.max_tokens, wishes, a.stop_texts);
  options.decode_batch = a.decode_batch;
  options.speculation = names_draft(a) ? Speculation::kAuto : speculation_named(a.speculate);
  options.grammar = grammar_of(a, model);
  options.watch = a.watch;
  return options;
}

Conversation opening(const RunArguments& a) {
  Conversation conversation;
  conversation.system = a.system;
  return conversation;
}

std::vector<int32_t> prompt_tokens(const RunArguments& a, const LoadedModel& model, const InterruptFlag& interrupt) {
  if (a.prompt_ids_given.given()) return a.prompt_ids;
  const Tokenizer& tokenizer = model.need_tokenizer();
  const auto stopped = [&] { return interrupt.raised(); };
  if (a.raw) return tokenizer.encode(a.prompt, true, stopped);
  if (!model.chat_template || !model.chat_template->present()) {
    say("this model has no chat template; the prompt goes in as it is");
    return tokenizer.encode(a.prompt, true, stopped);
  }
  Conversation conversation = opening(a);
  conversation.ask(a.prompt);
  return tokenizer.encode(model.chat_template->render(conversation.to_json(), Json(), true), false, stopped);
}

void print_speed(const Generation& generation, std::string_view backend) {
  if (!info_enabled()) return;
  const Timing& t = generation.timing;
  say_dim("[{}: {} prompt tokens at {:.0f}/s, {} tokens at {:.1f}/s, stopped by {}]", backend, t.prefilled,
          t.prefill_tok_s(), generation.token_ids.size(), t.decode_tok_s(), name_of(generation.stop_reason));
}

void answer_once(const RunArguments& a, const LoadedModel& model, Session& session, double load_ms) {
  const InterruptFlag interrupt({SIGINT});
  const std::vector<int32_t> prompt = prompt_tokens(a, model, interrupt);
  const GenerateOptions options = generate_options(a, model);
  const Generation generation = session.generate(prompt, options, [&](std::string_view piece) {
    if (!a.json) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    }
    return !interrupt.raised() && std::ferror(stdout) == 0;
  });
  if (generation.stop_reason == StopReason::kNoToken) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "no token of this model's vocabulary can go on as the grammar demands",
          .where = "run",
          .got = generation.text,
          .todo = "Change the grammar so that the vocabulary can express what it demands"});
  }
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
                         {"decode_tok_s", t.decode_tok_s()},
                         {"found", t.found},
                         {"guessed", t.guessed},
                         {"accepted", t.accepted}}},
                       {"backend", backend},
                       {"seed", options.sampling.seed}};
  fmt::print("{}\n", result.dump());
}

// Options that contradict each other are refused: one of them would have no effect.
void check_together(const RunArguments& a) {
  const auto refuse = [](bool both, const char* first, const char* second) {
    if (both) {
      fail({.code = ErrorCode::kUsage,
            .what = fmt::format("{} and {} do not go together", first, second),
            .where = "run",
            .todo = "Leave one of them out"});
    }
  };
  const bool ids = a.prompt_ids_given.given();
  refuse(a.chat && a.json, "--chat", "--json");
  refuse(a.chat && a.raw, "--chat", "--raw");
  refuse(a.chat && ids, "--chat", "--prompt-ids");
  refuse(!a.system.empty() && a.raw, "--system", "--raw");
  refuse(!a.system.empty() && ids, "--system", "--prompt-ids");
  refuse(!a.grammar.empty() && !a.json_schema.empty(), "--grammar", "--json-schema");
  refuse(!a.grammar.empty() && a.json_object, "--grammar", "--json-object");
  refuse(!a.json_schema.empty() && a.json_object, "--json-schema", "--json-object");
}

// `draft` may be null.
std::unique_ptr<Session> start_session(RunArguments& a, const LoadedModel& model, const LoadedModel* draft) {
  if (draft) check_draft(*draft, model, a.speculate);
  const SessionWishes wishes{a.backend,
                             a.device,
                             a.context,
                             a.threads,
                             a.gpu_memory,
                             !a.no_self_test,
                             !a.no_verify,
                             adapter_specs(a.adapters),
                             parse_kernel_wishes(a.kernel)};
  std::string backend_name;
  std::unique_ptr<Session> session = open_session(model, wishes, [&](const BackendChoice& backend, int context) {
    backend_name = backend.name;
    if (context > model.config.max_context) {
      say("the model was made for {} tokens of context; with {} it may lose the thread", model.config.max_context,
          context);
    }
    if (log_level() == LogLevel::kSilent) return;
    say_dim("[{} on {}: {}]", model.config.id, backend.name, backend.about);
  });
  a.watch = set_watchdog(a.watchdog, session->executor(), model);
  if (a.speculate != "auto" && a.speculate != "off" && !session->executor().cache().can_rewind())
    say("{} cannot take tokens back, since its layers go on from a state: nothing is guessed", model.config.id);
  if (draft) {
    session->set_draft(make_executor(
        *draft, backend_name,
        {.context = session->context() + DraftGuesser::kRoom, .threads = a.threads, .device = a.device, .alone = true},
        !a.no_verify));
  }
  return session;
}

void run(RunArguments a) {
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
  if (worked_as_other_rank(path, a.backend, a.device, a.threads, a.gpu_memory, a.sandbox)) return;
  const auto start = Clock::now();
  if (a.sandbox) {
    path = local_model(path).string();
    if (names_draft(a)) a.speculate = local_model(a.speculate).string();
    std::vector<std::filesystem::path> paths = {path, names_draft(a) ? a.speculate : "", a.grammar, a.json_schema};
    for (const AdapterSpec& adapter : adapter_specs(a.adapters)) paths.push_back(adapter.path);
    sandbox_now(sandbox_for(paths, a.backend));
  }
  LoadedModel model = open_model(path);
  std::optional<LoadedModel> draft;
  if (names_draft(a)) draft = open_model(a.speculate);
  const LoadedModel* const drafting = draft ? &*draft : nullptr;
  if (a.chat) {
    ChatSetup setup;
    setup.open = open_model;
    setup.start = [&](const LoadedModel& opened) { return start_session(a, opened, drafting); };
    setup.options = [&](const LoadedModel& opened) { return generate_options(a, opened); };
    return chat(setup, std::move(model), opening(a), a.prompt);
  }
  const std::unique_ptr<Session> session = start_session(a, model, drafting);
  const double load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  answer_once(a, model, *session, load_ms);
}

}  // namespace

void add_run(Verb app) {
  auto a = std::make_shared<RunArguments>();
  Verb verb = app.add_verb("run", "Generate text with a model");
  verb.add_option(
          "words", a->words,
          "[MODEL] [PROMPT]: a single word is the model if something of that name exists, or it begins with hf: or "
          "https://")
      .expected(0, 2)
      .help_text("[MODEL] [PROMPT]");
  a->prompt_given = verb.add_option("--prompt", a->prompt, "The prompt");
  a->prompt_file_given =
      verb.add_option("--prompt-file", a->prompt_file, "Read the prompt from a file (- for standard input)");
  a->prompt_ids_given =
      verb.add_option("--prompt-ids", a->prompt_ids, "The prompt as token ids: 2,5,9").delimiter(',').one_word();
  verb.add_option("--system", a->system, "A system message before the conversation");
  verb.add_flag("--raw", a->raw, "The prompt goes in as it is, without the model's chat template");
  verb.add_flag("--chat", a->chat, "Talk: lines are edited, the conversation is kept, /help lists commands");
  verb.add_option("--max-tokens", a->max_tokens, "Stop after this many tokens").show_default();
  verb.add_option("--temperature", a->sampling.temperature, "0 always takes the likeliest token").show_default();
  a->top_k = verb.add_option("--top-k", a->sampling.top_k, "Draw from the k likeliest (default: the model's advice)");
  a->top_p = verb.add_option("--top-p", a->sampling.top_p,
                             "Draw from the likeliest that make up p (default: the model's advice)");
  a->min_p = verb.add_option("--min-p", a->sampling.min_p,
                             "Draw from those at least this fraction as likely as the likeliest");
  a->repeat_penalty = verb.add_option("--repeat-penalty", a->sampling.repeat_penalty,
                                      "Make tokens of the text so far less likely; 1 is off");
  a->seed = verb.add_option("--seed", a->sampling.seed, "Same seed, same text (default: random)");
  verb.add_option("--stop", a->stop_texts, "Stop before this text appears (repeatable)").repeatable();
  verb.add_option("--grammar", a->grammar, "A file with a grammar in GBNF that the answer must match");
  verb.add_option("--json-schema", a->json_schema,
                  "A JSON schema that the answer must be valid for: a file, or the schema itself: '{…}'");
  verb.add_flag("--json-object", a->json_object, "The answer must be a JSON object");
  verb.add_option("--context", a->context, "Tokens to make room for (default: the model's own, at most 4096)")
      .positive();
  verb.add_option("--threads", a->threads, "Threads (default: one per core)").range(1, 1024);
  verb.add_option("--backend", a->backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a->device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(verb, a->gpu_memory);
  add_lora(verb, a->adapters);
  add_kernel(verb, a->kernel);
  add_watchdog(verb, a->watchdog);
  verb.add_option("--decode-batch", a->decode_batch,
                  "Tokens a GPU chooses in one go (default: as many as take a twentieth of a second)")
      .range(1, 64);
  verb.add_option("--speculate", a->speculate,
                  "Guess tokens and check several at once, on the CPU: from the text where it pays (auto) or always "
                  "(ngram), by "
                  "a small model of the same vocabulary (its folder or file), or off; the tokens are the same")
      .show_default();
  verb.add_flag("--no-self-test", a->no_self_test, "Do not compare the GPU with the CPU before the first token");
  add_no_verify(verb, a->no_verify);
  verb.add_flag("--sandbox", a->sandbox,
                "Reach nothing but the model and the GPU, whatever the model's bytes do (Linux; see SECURITY.md); a "
                "chat keeps and saves nothing then");
  verb.add_flag("--json", a->json, "Print one JSON object when done");
  verb.footer("In a chat:\n" + chat_help() +
              "\nExamples:\n  doppler run \"Tell me a story about a brave cat.\"\n"
              "  doppler run hf:org/repo:Q4_K_M \"What color is the sky?\"\n"
              "  doppler run models/tiny --raw \"The color of the sky is\" --max-tokens 4\n"
              "  doppler run --chat --temperature 0.7");
  verb.callback([a] { run(*a); });
}

}  // namespace doppler
