#include "cli/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/say.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"

namespace doppler {
namespace {

constexpr float kRegenTemperature = 0.7f;  // for another answer where answers are not drawn

void check_can_chat(const LoadedModel& model) {
  model.need_tokenizer();
  model.need_chat_template();
}

std::string_view stopped_by(const Generation& generation) {
  return generation.stop_reason == StopReason::kInterrupted ? "Ctrl-C" : name_of(generation.stop_reason);
}

class Chat {
 public:
  Chat(const ChatSetup& setup, LoadedModel model, Conversation opening)
      : setup_(setup),
        reader_(state_file("chat_history"), complete_chat_input),
        model_(std::make_unique<LoadedModel>(std::move(model))),
        options_(setup.options(*model_)),
        session_(setup.start(*model_)),
        conversation_(std::move(opening)) {}

  void run(const std::string& first) {
    if (reader_.terminal()) {
      note(fmt::format("Chatting with {}. /help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.",
                       model_->config.id));
    }
    if (!first.empty()) guarded([&] { ask(first); });
    std::string typed;
    while (!left_ && read(typed)) {
      if (typed.find_first_not_of(" \t") == std::string::npos) continue;
      if (const std::string trouble = reader_.remember(typed); !trouble.empty() && !warned_) {
        warned_ = true;
        note(trouble);
      }
      guarded([&] {
        const ChatInput input = parse_chat_input(typed);
        if (input.command) {
          obey(*input.command, input.text);
        } else if (!input.text.empty()) {
          ask(input.text);
        }
      });
    }
  }

 private:
  // Dim in a conversation on a terminal; elsewhere with the program's name in front.
  void note(std::string_view text) const {
    if (!reader_.terminal()) return say("{}", text);
    say_dim("{}", text);
  }

  // On a terminal what fails is said, and the conversation goes on.
  template <class Action>
  void guarded(Action&& action) {
    try {
      action();
    } catch (const Failure& failure) {
      if (!reader_.terminal() || !session_) throw;  // no session: a model could not be put back
      say("{}", failure.what());
    }
  }

  // A line, or the lines from """ to """. False at the end.
  bool read(std::string& typed) {
    typed.clear();
    std::string line;
    for (int cancels = 0;;) {
      const bool inside = !typed.empty();
      const LineReader::Result result = reader_.read(inside ? "… " : "> ", line);
      if (result == LineReader::Result::kLine) {
        typed += line;
        if (!is_open_block(typed)) return true;
        typed += '\n';
        continue;
      }
      interrupt_.lower();
      const bool canceled = result == LineReader::Result::kInterrupted;
      if (reader_.terminal()) write_stderr(canceled ? "^C\n" : "\n");
      if (canceled && reader_.terminal()) {
        if (++cancels > 1) note("(Ctrl-D leaves)");
        typed.clear();
        continue;
      }
      if (inside && !reader_.terminal()) {
        fail({.code = ErrorCode::kUsage, .what = "a text of several lines has no end", .expected = "\"\"\""});
      }
      return false;
    }
  }

  bool confirm(const std::string& question) {
    note(question);
    std::string line;
    const LineReader::Result result = reader_.read("[y/N] ", line);
    if (result != LineReader::Result::kLine) {
      interrupt_.lower();
      write_stderr("\n");
      return false;
    }
    return line == "y" || line == "Y" || line == "yes";
  }

  std::vector<int32_t> tokens_of(const Conversation& conversation) {
    const std::string text =
        model_->chat_template->render(conversation.to_json(), Json(), conversation.awaits_answer());
    return model_->need_tokenizer().encode(text, false, [this] { return interrupt_.lower(); });
  }

  void ask(const std::string& question) {
    conversation_.ask(question);
    bool answered = false;
    try {
      answered = answer(options_);
    } catch (const Failure&) {
      conversation_.take_back_question();
      throw;
    }
    if (answered) return;
    conversation_.take_back_question();
    note("The question is taken back.");
  }

  // Answers the question at the end. False if nothing was said.
  bool answer(const GenerateOptions& options) {
    for (;;) {
      const std::vector<int32_t> prompt = tokens_of(conversation_);
      const int context = session_->context();
      if (prompt.size() > static_cast<size_t>(context) && reader_.terminal()) {
        const Room room =
            offer_to_drop(fmt::format("The context is full: {} tokens, and room for {}.", prompt.size(), context));
        if (room == Room::kMade) continue;
        if (room == Room::kDeclined) {
          note("/save FILE keeps the conversation, /clear starts over.");
          return false;
        }
      }
      const Generation generation = generate(prompt, options);
      if (generation.text.empty() && generation.stop_reason == StopReason::kInterrupted) {
        note("Nothing was said yet.");
        return false;
      }
      const int left = std::max(context - static_cast<int>(prompt.size() + generation.token_ids.size()), 0);
      print_summary(generation, left);
      if (generation.stop_reason == StopReason::kContextFull) {
        const std::string full = fmt::format("The context of {} tokens is full, so the answer ends here.", context);
        const Room room = reader_.terminal() ? offer_to_drop(full) : Room::kNone;
        if (room == Room::kMade) continue;
        if (room == Room::kNone) note(full);
      }
      conversation_.answer(generation.text);
      return true;
    }
  }

  Generation generate(const std::vector<int32_t>& prompt, const GenerateOptions& options) {
    if (broken_) session_->invalidate();
    broken_ = true;  // unless it comes to an end
    interrupt_.lower();
    const EchoOff quiet(reader_.terminal());
    last_ = session_->generate(prompt, options, [&](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
      return !interrupt_.raised();
    });
    broken_ = false;
    interrupt_.lower();
    fmt::print("\n");
    std::fflush(stdout);
    return *last_;
  }

  void print_summary(const Generation& generation, int left) const {
    if (!info_enabled()) return;
    const bool ended = generation.stop_reason == StopReason::kEnd;
    say_dim("[{} tokens at {:.1f}/s{}{}; {} of {} tokens of context left]", generation.token_ids.size(),
            generation.timing.decode_tok_s(), ended ? "" : ", stopped by ", ended ? "" : stopped_by(generation), left,
            session_->context());
  }

  enum class Room { kMade, kDeclined, kNone };
  // Asks whether the oldest turns may go: as many as leave half of the context (or what an answer may take) to the
  // answer, else all but the last. kNone: that would not help.
  Room offer_to_drop(const std::string& why) {
    const int context = session_->context(), wanted = std::min(options_.max_tokens, context / 2);
    const auto to_drop = [&](int limit) {
      return turns_to_drop(conversation_, [&, limit](const Conversation& rest) {
        return tokens_of(rest).size() <= static_cast<size_t>(limit);
      });
    };
    std::optional<size_t> turns = to_drop(context - wanted);
    if (!turns && to_drop(context)) turns = conversation_.turns() - 1;
    if (!turns || *turns == 0) return Room::kNone;
    const std::string oldest = *turns == 1 ? "turn" : fmt::format("{} turns", *turns);
    if (!confirm(fmt::format("{} Drop the oldest {}{} to make room?", why, oldest,
                             conversation_.system.empty() ? "" : " (not the system prompt)"))) {
      return Room::kDeclined;
    }
    conversation_.drop_oldest(*turns);
    return Room::kMade;
  }

  void obey(CommandKind command, const std::string& argument) {
    switch (command) {
      case CommandKind::kHelp: write_stderr(chat_help()); return;
      case CommandKind::kClear:
        conversation_.clear();
        return note(conversation_.system.empty() ? "A new conversation."
                                                 : "A new conversation; the system prompt stays.");
      case CommandKind::kSystem: return set_system(argument);
      case CommandKind::kRegen: return regenerate();
      case CommandKind::kSave:
        conversation_.save(expand_home(argument));
        return note(fmt::format("Saved {} to {}.", length(), argument));
      case CommandKind::kLoad:
        conversation_ = Conversation::load(expand_home(argument));
        return note(fmt::format("Loaded {} from {}.{}", length(), argument,
                                conversation_.awaits_answer() ? " /regen answers its last question." : ""));
      case CommandKind::kStats: return print_stats();
      case CommandKind::kModel: return change_model(argument);
      case CommandKind::kExit: left_ = true; return;
    }
  }

  std::string length() const {
    const size_t turns = conversation_.turns();
    return fmt::format("{} turn{}{}", turns, turns == 1 ? "" : "s",
                       conversation_.system.empty() ? "" : " and a system prompt");
  }

  void set_system(const std::string& text) {
    if (text.empty()) {
      return note(conversation_.system.empty() ? "There is no system prompt." : conversation_.system);
    }
    conversation_.system = text == "\"\"" ? "" : text;
    note(conversation_.system.empty() ? "The system prompt is removed." : "The system prompt is set.");
  }

  void regenerate() {
    const std::optional<std::string> before = conversation_.take_back_answer();
    if (!conversation_.awaits_answer()) {
      if (before) conversation_.answer(*before);
      return note("There is no question to answer yet.");
    }
    GenerateOptions options = options_;
    if (before) {
      options.sampling.seed = ++options_.sampling.seed;
      const bool greedy = options.sampling.temperature <= 0;
      if (greedy) {
        const Sampling& advice = model_->recommended;
        options.sampling = advice;
        options.sampling.seed = options_.sampling.seed;
        if (advice.temperature <= 0) options.sampling.temperature = kRegenTemperature;
      }
      note(fmt::format(
          "Another answer, with seed {}{}.", options.sampling.seed,
          greedy ? fmt::format(" and temperature {} (at 0 it would be the same)", options.sampling.temperature) : ""));
    }
    bool answered = false;
    try {
      answered = answer(options);
    } catch (const Failure&) {
      if (before) conversation_.answer(*before);
      throw;
    }
    if (!answered && before) conversation_.answer(*before);
  }

  void print_stats() {
    const auto line = [](std::string_view name, const std::string& value) {
      write_stderr(fmt::format("  {:<12} {}\n", name, visible(value)));
    };
    const int context = session_->context();
    const int used = conversation_.turns() == 0 ? 0 : static_cast<int>(tokens_of(conversation_).size());
    line("model", fmt::format("{} on {}", model_->config.id, session_->executor().name()));
    line("conversation", fmt::format("{}, {} tokens", length(), used));
    line("context", fmt::format("{} of {} tokens left", std::max(context - used, 0), context));
    if (last_) {
      const Timing& t = last_->timing;
      line("last answer",
           fmt::format("prefill {} tokens at {:.0f}/s, decode {} tokens at {:.1f}/s, stopped by {}", t.prefilled,
                       t.prefill_tok_s(), last_->token_ids.size(), t.decode_tok_s(), stopped_by(*last_)));
    }
    line("cache",
         fmt::format("{}B of keys and values", with_prefix(static_cast<double>(session_->executor().context_bytes()))));
  }

  // The old session makes room before the new one is built, and comes back if that fails.
  void change_model(const std::string& path) {
    auto model = std::make_unique<LoadedModel>(setup_.open(expand_home(path).string()));
    check_can_chat(*model);
    GenerateOptions options = setup_.options(*model);
    session_.reset();
    try {
      session_ = setup_.start(*model);
    } catch (...) {
      session_ = setup_.start(*model_);
      throw;
    }
    model_ = std::move(model);
    options_ = std::move(options);
    last_.reset();
    broken_ = false;
    note(fmt::format("Chatting with {}; {} kept.", model_->config.id, length()));
  }

  const ChatSetup& setup_;
  LineReader reader_;
  std::unique_ptr<LoadedModel> model_;  // outlives the session
  GenerateOptions options_;
  std::unique_ptr<Session> session_;
  Conversation conversation_;
  InterruptFlag interrupt_{SIGINT};  // once the model is there: until then Ctrl-C ends the program
  std::optional<Generation> last_;
  bool left_ = false, warned_ = false, broken_ = false;
};

}  // namespace

void chat(const ChatSetup& setup, LoadedModel model, Conversation opening, const std::string& first) {
  check_can_chat(model);
  Chat(setup, std::move(model), std::move(opening)).run(first);
}

}  // namespace doppler
