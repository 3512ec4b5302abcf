#include "cli/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr uintmax_t kLargestFile = 64 << 20;  // bytes; the largest contexts are a few MB of text

constexpr CommandDescription kCommands[] = {
    {CommandKind::kHelp, "/help", "", false, false, "This list"},
    {CommandKind::kClear, "/clear", "", false, false, "Start over; the system prompt stays"},
    {CommandKind::kSystem, "/system", "TEXT", false, false,
     "Set the system prompt; alone show it, with \"\" remove it"},
    {CommandKind::kRegen, "/regen", "", false, false, "Drop the last answer and draw another"},
    {CommandKind::kSave, "/save", "FILE", true, true, "Write the conversation as JSON"},
    {CommandKind::kLoad, "/load", "FILE", true, true, "Go on with a conversation that /save wrote"},
    {CommandKind::kStats, "/stats", "", false, false, "Tokens, context, speed of the last answer, memory"},
    {CommandKind::kModel, "/model", "PATH", true, true, "Go on with another model"},
    {CommandKind::kExit, "/exit", "", false, false, "Leave, as Ctrl-D does"},
};

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The place of the text that a line is about: behind /system, else its beginning.
std::string_view without_command(std::string_view typed) {
  if (!typed.starts_with('/')) return typed;
  const size_t blank = typed.find_first_of(" \t");
  return blank == std::string_view::npos ? std::string_view() : trim(typed.substr(blank));
}

bool is_quoted(std::string_view text) {
  return text.size() >= 2 * kQuotes.size() && text.starts_with(kQuotes) && text.ends_with(kQuotes);
}

std::string unquote(std::string_view text) {
  if (!is_quoted(text)) return std::string(text);
  text = text.substr(kQuotes.size(), text.size() - 2 * kQuotes.size());
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return std::string(text);
}

// Insertions, deletions and replacements of single characters between two words.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

[[noreturn]] void fail_unknown(std::string_view name) {
  const CommandDescription* nearest = nullptr;
  size_t least = 3;  // further away is another word
  for (const CommandDescription& command : kCommands) {
    const bool begun = name.size() > 1 && command.name.starts_with(name);
    const size_t distance = begun ? 0 : name.size() > 16 ? least : edit_distance(name, command.name);
    if (distance < least) {
      least = distance;
      nearest = &command;
    }
  }
  const bool path = name.find('/', 1) != std::string_view::npos;
  fail({.code = ErrorCode::kUsage,
        .what = fmt::format("there is no command {}", name.substr(0, 40)),
        .todo = nearest ? fmt::format("Did you mean {}?", nearest->name)
                : path  ? "Put the text between \"\"\" to send it"
                        : "/help lists the commands"});
}

}  // namespace

std::optional<std::string> Conversation::take_back(std::string_view role) {
  if (messages_.empty() || messages_.back().role != role) return {};
  std::string content = std::move(messages_.back().content);
  messages_.pop_back();
  return content;
}

size_t Conversation::turns() const {
  const auto questions = std::count_if(messages_.begin(), messages_.end(), [](auto& m) { return m.role == "user"; });
  return static_cast<size_t>(questions);
}

void Conversation::drop_oldest(size_t turns) {
  size_t questions = 0;
  const auto keep = std::find_if(messages_.begin(), messages_.end(),
                                 [&](const Message& m) { return m.role == "user" && ++questions > turns; });
  if (turns > 0) messages_.erase(messages_.begin(), keep);
}

std::vector<Message> Conversation::messages() const {
  std::vector<Message> all;
  if (!system.empty()) all.push_back({"system", system});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

Json Conversation::to_json() const {
  Json all = Json::array();
  for (Message& message : messages()) {
    all.push_back({{"role", std::move(message.role)}, {"content", std::move(message.content)}});
  }
  return all;
}

void Conversation::save(const fs::path& path) const {
  const Json file = {{"messages", to_json()}};
  write_file_whole(path, file.dump(2) + "\n");
}

Conversation Conversation::load(const fs::path& path) {
  std::error_code error;
  if (const uintmax_t size = fs::file_size(path, error); !error && size > kLargestFile) {
    fail({.code = ErrorCode::kFormat,
          .what = "the file is too large for a conversation",
          .where = path.string(),
          .expected = fmt::format("at most {} bytes", kLargestFile),
          .got = fmt::format("{}", size)});
  }
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    fail({.code = ErrorCode::kFile, .what = "this is not a regular file", .where = path.string()});
  }
  const Json file = parse_json(read_text_file(path), path.string());
  const Json& messages = file.is_array() ? file : require_array(file, "messages", path.string());
  Conversation loaded;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("{}: messages[{}]", path.string(), i);
    if (!messages[i].is_object()) {
      fail({.code = ErrorCode::kFormat, .what = "a message must be an object", .where = where});
    }
    const std::string role = require_string(messages[i], "role", where);
    std::string content = require_string(messages[i], "content", where);
    if (role == "system" && i == 0) {
      loaded.system = std::move(content);
    } else if (role == "user" || role == "assistant") {
      loaded.messages_.push_back({role, std::move(content)});
    } else {
      fail({.code = ErrorCode::kFormat,
            .what = "a conversation has no place for this message",
            .where = where,
            .expected = i == 0 ? "the role system, user or assistant" : "the role user or assistant",
            .got = role});
    }
  }
  return loaded;
}

std::optional<size_t> turns_to_drop(const Conversation& conversation,
                                    const std::function<bool(const Conversation&)>& fits) {
  const auto fits_without = [&](size_t turns) {
    Conversation rest = conversation;
    rest.drop_oldest(turns);
    return fits(rest);
  };
  size_t low = 0, high = std::max<size_t>(conversation.turns(), 1) - 1;
  if (!fits_without(high)) return {};
  while (low < high) {  // it fits without `high` turns
    const size_t middle = (low + high) / 2;
    if (fits_without(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

std::span<const CommandDescription> chat_commands() { return kCommands; }

std::string chat_help() {
  std::string text;
  const auto line = [&](std::string_view left, std::string_view right) {
    text += fmt::format("  {:<14} {}\n", left, right);
  };
  for (const CommandDescription& command : kCommands) {
    line(fmt::format("{}{}{}", command.name, command.argument.empty() ? "" : " ", command.argument), command.help);
  }
  line("\"\"\"", "Begins a text of several lines, and ends it");
  line("Tab", "Completes commands and file names");
  line("Up, Ctrl-R", "What you typed before, and a search in it");
  line("Ctrl-C", "Stops the answer, and keeps what was said");
  line("Ctrl-D", "Leaves");
  return text;
}

bool is_open_block(std::string_view typed) {
  const std::string_view text = without_command(typed.substr(0, typed.find('\n')));
  return text.starts_with(kQuotes) && !is_quoted(trim(without_command(typed)));
}

ChatInput parse_chat_input(std::string_view typed) {
  if (!typed.starts_with('/')) {
    const std::string_view trimmed = trim(typed);
    return {.command = {}, .text = is_quoted(trimmed) ? unquote(trimmed) : std::string(typed)};
  }
  const std::string_view name = typed.substr(0, typed.find_first_of(" \t\r\n"));
  const auto command =
      std::find_if(std::begin(kCommands), std::end(kCommands), [&](auto& c) { return c.name == name; });
  if (command == std::end(kCommands)) fail_unknown(name);
  const std::string_view argument = trim(typed.substr(name.size()));
  const bool needs = command->needs_argument && argument.empty();
  const bool excess = command->argument.empty() && !argument.empty();
  if (needs) fail({.code = ErrorCode::kUsage, .what = fmt::format("{} needs a {}", name, command->argument)});
  if (excess) {
    fail({.code = ErrorCode::kUsage,
          .what = fmt::format("{} takes nothing", name),
          .got = std::string(argument.substr(0, 40))});
  }
  return {.command = command->kind, .text = unquote(argument)};
}

Completions complete_chat_input(std::string_view typed) {
  if (!typed.starts_with('/')) return {};
  Completions found;
  const size_t blank = typed.find(' ');
  if (blank == std::string_view::npos) {
    for (const CommandDescription& command : kCommands) {
      if (!command.name.starts_with(typed)) continue;
      found.candidates.push_back(std::string(command.name) + (command.argument.empty() ? "" : " "));
    }
    std::sort(found.candidates.begin(), found.candidates.end());
    return found;
  }
  const auto command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                    [&](auto& c) { return c.takes_path && c.name == typed.substr(0, blank); });
  if (command == std::end(kCommands)) return {};
  const std::string path(typed.substr(std::min(typed.find_first_not_of(' ', blank), typed.size())));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string begun = path.substr(folder.size());
  found.from = typed.size() - begun.size();
  std::error_code error;
  const fs::path listed = folder.empty() ? fs::path(".") : expand_home(folder);
  for (fs::directory_iterator item(listed, error), end; !error && item != end; item.increment(error)) {
    const std::string name = item->path().filename().string();
    if (!name.starts_with(begun) || (begun.empty() && name.starts_with('.'))) continue;
    std::error_code ignored;
    found.candidates.push_back(name + (item->is_directory(ignored) ? "/" : ""));
  }
  std::sort(found.candidates.begin(), found.candidates.end());
  return found;
}

}  // namespace doppler
