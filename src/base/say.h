// Words for the person at the terminal, on standard error. That nobody can read them is no reason to stop: a write
// that fails is passed over.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace doppler {

// Text that came from outside, as a terminal may get it: control characters, bytes that are no UTF-8 and the marks that
// turn the direction of writing are spelled out (\n, \x1b, \u202e), so that a model's name can neither move the cursor
// nor pass for a line of ours.
std::string visible(std::string_view text);

// The bytes as they are.
void write_stderr(std::string_view text) noexcept;

// In place of the terminal's last line, which show_status("") wipes; made visible().
void show_status(std::string_view text);

namespace detail {
void say(fmt::string_view format, fmt::format_args arguments);
void say_dim(fmt::string_view format, fmt::format_args arguments);
}  // namespace detail

// "doppler: …" and the end of the line, made visible().
template <class... T>
void say(fmt::format_string<T...> format, T&&... arguments) {
  detail::say(format, fmt::make_format_args(arguments...));
}

// A line without the name, made visible(); dim on a terminal.
template <class... T>
void say_dim(fmt::format_string<T...> format, T&&... arguments) {
  detail::say_dim(format, fmt::make_format_args(arguments...));
}

}  // namespace doppler
