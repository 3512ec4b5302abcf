// A conversation apart from any terminal: what was said, the commands that change it, the files that keep it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace doppler {

struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
  bool operator==(const Message&) const = default;
};

// A system prompt, which may be empty, and turns: a question and the answers up to the next question.
class Conversation {
 public:
  std::string system;

  void ask(std::string question) { messages_.push_back({"user", std::move(question)}); }
  void answer(std::string answer) { messages_.push_back({"assistant", std::move(answer)}); }
  bool awaits_answer() const { return !messages_.empty() && messages_.back().role == "user"; }
  // The last message, if it is the answer or the question; it is no longer part of the conversation then.
  std::optional<std::string> take_back_answer() { return take_back("assistant"); }
  std::optional<std::string> take_back_question() { return take_back("user"); }

  size_t turns() const;
  void drop_oldest(size_t turns);  // the system prompt stays
  void clear() { messages_.clear(); }

  std::vector<Message> messages() const;  // the system prompt first, if there is one
  Json to_json() const;                   // what a chat template takes

  // {"messages": [{"role": …, "content": …}, …]}, as `doppler tokenize --chat` reads it, too. The file is whole or not
  // there.
  void save(const std::filesystem::path& path) const;
  // Reads that, or only the array. Fails with the place of what is no such message.
  static Conversation load(const std::filesystem::path& path);

 private:
  std::optional<std::string> take_back(std::string_view role);
  std::vector<Message> messages_;  // without the system prompt
};

// The fewest of the oldest turns without which the conversation fits. The last turn always stays; none if that does not
// help. Asks `fits` about log2(turns) conversations: without more turns a conversation must not fit less.
std::optional<size_t> turns_to_drop(const Conversation& conversation,
                                    const std::function<bool(const Conversation&)>& fits);

enum class CommandKind : uint8_t { kHelp, kClear, kSystem, kRegen, kSave, kLoad, kStats, kModel, kExit };

struct CommandDescription {
  CommandKind kind;
  std::string_view name;      // "/save"
  std::string_view argument;  // "FILE", or empty where none is taken
  bool needs_argument;
  bool takes_path;
  std::string_view help;
};
std::span<const CommandDescription> chat_commands();
// Every command and key of a chat, a line each, indented by two spaces: for /help and for --help.
std::string chat_help();

// What a person typed, as one of two things.
struct ChatInput {
  std::optional<CommandKind> command;
  std::string text;  // the message, or the command's argument
};

// Whether `typed` begins a text between """ that has no end yet, so that another line belongs to it.
bool is_open_block(std::string_view typed);
// A line that begins with / is a command; """ at both ends of a message or an argument are taken off. Fails (kUsage)
// for a command that there is not, with the nearest name, and for a missing or superfluous argument.
ChatInput parse_chat_input(std::string_view typed);

// What Tab offers: each candidate may replace what stands in `typed` from `from` on.
struct Completions {
  size_t from = 0;
  std::vector<std::string> candidates;  // sorted
};
// Names of commands, and of files behind those that take a path. `typed` is the line up to the cursor.
Completions complete_chat_input(std::string_view typed);

}  // namespace doppler
