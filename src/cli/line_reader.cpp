#include "cli/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/say.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

constexpr size_t kRemembered = 1000;  // texts
constexpr size_t kListed = 60;        // candidates of a completion
constexpr char kLiteral = '\1';       // around what a prompt prints without moving the cursor
constexpr mode_t kOwnerOnly = 0600;   // what people say to a model is theirs

// A text as a line of the history's file.
std::string escape(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::string unescape(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      text += line[++i] == 'n' ? '\n' : line[i];
    } else {
      text += line[i];
    }
  }
  return text;
}

// The last texts of the file, the oldest first. A file that has grown to twice as many is cut.
std::vector<std::string> read_history(const fs::path& path) {
  std::vector<std::string> texts;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return texts;
  const std::string file = read_text_file(path);
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < file.size();) {
    const size_t end = std::min(file.find('\n', at), file.size());
    if (end > at) lines.push_back(std::string_view(file).substr(at, end - at));
    at = end + 1;
  }
  const size_t first = lines.size() > kRemembered ? lines.size() - kRemembered : 0;
  if (lines.size() > 2 * kRemembered) {
    const mode_t before = ::umask(static_cast<mode_t>(~kOwnerOnly & 0777));
    write_file_whole(path, std::string_view(file).substr(static_cast<size_t>(lines[first].data() - file.data())));
    ::umask(before);
  }
  for (size_t i = first; i < lines.size(); ++i) texts.push_back(unescape(lines[i]));
  return texts;
}

// The beginning that all candidates have, never less than whole characters.
std::string common_beginning(const std::vector<std::string>& candidates) {
  std::string common = candidates.front();
  for (const std::string& other : candidates) {
    size_t same = 0;
    while (same < common.size() && same < other.size() && common[same] == other[same]) ++same;
    while (same > 0 && same < other.size() && (other[same] & 0xC0) == 0x80) --same;
    common.resize(same);
  }
  return common;
}

}  // namespace

struct LineReader::Editor {
  Editor(FILE* out, Complete complete_with) : screen(out), complete(std::move(complete_with)) {
    // Characters are UTF-8 even where nobody has set a locale: text goes to a tokenizer that knows nothing else.
    ::setlocale(LC_CTYPE, "");
    if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) ::setlocale(LC_CTYPE, "C.UTF-8");
    history_list = ::history_init();
    line = ::el_init("doppler", stdin, out, stderr);
    if (!line || !history_list) fail({.code = ErrorCode::kMemory, .what = "the line editor cannot be started"});
    HistEvent event;
    ::history(history_list, &event, H_SETSIZE, static_cast<int>(kRemembered));
    ::history(history_list, &event, H_SETUNIQUE, 1);
    ::el_set(line, EL_CLIENTDATA, this);
    ::el_set(line, EL_EDITOR, "emacs");
    ::el_set(line, EL_SIGNAL, 1);  // a changed window, Ctrl-Z and fg
    ::el_set(line, EL_HIST, ::history, history_list);
    ::el_set(line, EL_PROMPT_ESC, &Editor::show_prompt, kLiteral);
    // Wide: libedit never frees the copies that it makes of narrow names.
    ::el_wset(line, EL_ADDFN, L"doppler-complete", L"Complete a command or a file name", &Editor::on_tab);
    const auto bind = [&](const char* key, const char* action) { ::el_set(line, EL_BIND, key, action, nullptr); };
    bind("^I", "doppler-complete");
    bind("^R", "em-inc-search-prev");
    bind("^W", "ed-delete-prev-word");
    bind("\\e[3~", "ed-delete-next-char");
    bind("\\e[1;5C", "em-next-word");  // Ctrl with an arrow
    bind("\\e[1;5D", "ed-prev-word");
    ::el_source(line, nullptr);  // a person's own ~/.editrc
  }
  ~Editor() {
    if (line) ::el_end(line);
    if (history_list) ::history_end(history_list);
  }

  static Editor& of(EditLine* line) {
    void* data = nullptr;
    ::el_get(line, EL_CLIENTDATA, &data);
    return *static_cast<Editor*>(data);
  }
  static char* show_prompt(EditLine* line) { return of(line).prompt.data(); }

  // One candidate, or what all of them begin with, is put in; else they are listed.
  static unsigned char on_tab(EditLine* line, int) {
    Editor& self = of(line);
    const LineInfo* info = ::el_line(line);
    const std::string_view typed(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    const Completions found = self.complete ? self.complete(typed) : Completions();
    if (found.candidates.empty()) return CC_ERROR;
    const std::string common = common_beginning(found.candidates), begun(typed.substr(found.from));
    if (common.size() > begun.size()) {
      return ::el_insertstr(line, common.c_str() + begun.size()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    if (found.candidates.size() == 1) return CC_ERROR;  // it stands there already
    std::string list = "\n";
    for (size_t i = 0; i < std::min(kListed, found.candidates.size()); ++i) list += found.candidates[i] + "  ";
    if (found.candidates.size() > kListed) list += fmt::format("and {} more", found.candidates.size() - kListed);
    fmt::print(self.screen, "{}\n", list);
    std::fflush(self.screen);
    return CC_REDISPLAY;
  }

  FILE* screen;
  Complete complete;
  std::string prompt;
  EditLine* line = nullptr;
  ::History* history_list = nullptr;
};

LineReader::LineReader(fs::path history, Complete complete) : history_(std::move(history)) {
  FILE* screen = ::isatty(STDOUT_FILENO) ? stdout : ::isatty(STDERR_FILENO) ? stderr : nullptr;
  if (!screen || !::isatty(STDIN_FILENO)) return;
  editor_ = std::make_unique<Editor>(screen, std::move(complete));
  try {
    for (const std::string& text : read_history(history_)) {
      HistEvent event;
      ::history(editor_->history_list, &event, H_ENTER, text.c_str());
      last_ = text;
    }
  } catch (const Failure& failure) {  // no reason not to talk
    say("{}", failure.what());
  }
}

LineReader::~LineReader() = default;

LineReader::Result LineReader::read(std::string_view prompt, std::string& line) {
  line.clear();
  std::fflush(stdout);
  if (editor_) {
    // Bold; a prompt must not end in what moves no cursor, so its last character comes after that.
    const std::string_view body = prompt.substr(0, prompt.size() - 1);
    editor_->prompt = fmt::format("{0}\033[1m{0}{1}{0}\033[0m{0}{2}", kLiteral, body, prompt.back());
    int count = 0;
    const char* text = ::el_gets(editor_->line, &count);
    if (!text || count <= 0) return count < 0 && errno == EINTR ? Result::kInterrupted : Result::kEnd;
    line.assign(text, static_cast<size_t>(count));
  } else {
    char* buffer = nullptr;
    size_t capacity = 0;
    errno = 0;
    const ssize_t length = ::getline(&buffer, &capacity, stdin);
    const bool interrupted = length < 0 && errno == EINTR;
    if (length > 0) line.assign(buffer, static_cast<size_t>(length));
    std::free(buffer);
    if (length < 0) return interrupted ? Result::kInterrupted : Result::kEnd;
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return Result::kLine;
}

std::string LineReader::remember(const std::string& text) {
  if (!editor_ || text == last_) return "";
  last_ = text;
  HistEvent event;
  ::history(editor_->history_list, &event, H_ENTER, text.c_str());
  if (history_.empty()) return "";
  // One write of a whole line at the end, so that chats beside each other do not lose lines.
  std::error_code ignored;
  fs::create_directories(history_.parent_path(), ignored);
  const int fd = ::open(history_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kOwnerOnly);
  const std::string entry = escape(text) + "\n";
  const bool written = fd >= 0 && ::write(fd, entry.data(), entry.size()) == static_cast<ssize_t>(entry.size());
  const std::string why = written ? "" : std::strerror(errno);
  if (fd >= 0) ::close(fd);
  return written ? "" : fmt::format("what you type is not remembered ({}): {}", history_.string(), why);
}

EchoOff::EchoOff(bool terminal) {
  struct termios settings {};
  if (!terminal || ::tcgetattr(STDIN_FILENO, &settings) != 0) return;
  before_ = settings;
  settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
}

EchoOff::~EchoOff() {
  if (before_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

fs::path state_file(std::string_view name) {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state && state[0] == '/') return fs::path(state) / "doppler" / name;
  const char* home = std::getenv("HOME");
  return home && home[0] == '/' ? fs::path(home) / ".local/state/doppler" / name : fs::path();
}

}  // namespace doppler
