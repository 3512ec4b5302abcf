// Lines from standard input: edited, completed and remembered where a person types them, plain where they come from a
// pipe or a file.
#pragma once

#include <termios.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/conversation.h"

namespace doppler {

class LineReader {
 public:
  using Complete = std::function<Completions(std::string_view typed)>;

  // Lines are edited where standard input is a terminal and there is one to draw on: standard output, else error.
  // `history` is a file of what was typed before; it is made where it is missing.
  LineReader(std::filesystem::path history, Complete complete);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool terminal() const { return editor_ != nullptr; }

  enum class Result { kLine, kInterrupted, kEnd };
  // A line without its end. The prompt is shown on a terminal only. A signal that is handled interrupts.
  Result read(std::string_view prompt, std::string& line);

  // Puts a text, which may have several lines, into the history. Returns a sentence if the file does not take it.
  std::string remember(const std::string& text);

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;
  std::filesystem::path history_;
  std::string last_;  // remembered
};

// While it lives, what is typed on a terminal does not appear between what the program prints; it waits for read().
class EchoOff {
 public:
  explicit EchoOff(bool terminal);
  ~EchoOff();
  EchoOff(const EchoOff&) = delete;
  EchoOff& operator=(const EchoOff&) = delete;

 private:
  std::optional<struct termios> before_;
};

// $XDG_STATE_HOME/doppler/NAME, by default in ~/.local/state; empty where there is no home.
std::filesystem::path state_file(std::string_view name);

}  // namespace doppler
