#include "base/say.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "base/utf8.h"

namespace doppler {
namespace {

bool turns_direction(char32_t code) { return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069); }

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = read_utf8(text, at);
    const std::string_view bytes = text.substr(at, unit.length);
    at += unit.length;
    if (!unit.valid) {
      for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
    } else if (unit.code == '\n') {
      out += "\\n";
    } else if (unit.code == '\t') {
      out += "\\t";
    } else if (unit.code == '\r') {
      out += "\\r";
    } else if (unit.code < 0x20 || (unit.code >= 0x7F && unit.code < 0xA0)) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(unit.code));
    } else if (turns_direction(unit.code)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(unit.code));
    } else {
      out += bytes;
    }
  }
  return out;
}

void write_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void show_status(std::string_view text) { write_stderr("\r\033[K" + visible(text)); }

void detail::say(fmt::string_view format, fmt::format_args arguments) {
  write_stderr("doppler: " + visible(fmt::vformat(format, arguments)) + "\n");
}

void detail::say_dim(fmt::string_view format, fmt::format_args arguments) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  write_stderr((terminal ? "\033[2m" : "") + visible(fmt::vformat(format, arguments)) +
               (terminal ? "\033[0m\n" : "\n"));
}

}  // namespace doppler
