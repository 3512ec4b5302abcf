// Where in a template we are, for error messages: "tokenizer_config.json, line 12: filter 'tojson'".
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace doppler::jinja {

struct Place {
  std::string source;  // what the template is called
  int line = 1;
  std::string_view construct;  // "filter", "{% for %}", "'+'"; may be empty
  std::string_view name;       // of the filter, test, variable; may be empty

  std::string text() const {
    std::string out = source + ", line " + std::to_string(line);
    if (!construct.empty()) out += ": " + std::string(construct);
    if (!name.empty()) out += " '" + std::string(name) + "'";
    return out;
  }
};

[[noreturn]] inline void fail_at(const Place& place, ErrorCode code, std::string what, std::string expected = "",
                                 std::string got = "", std::string todo = "") {
  fail({code, std::move(what), place.text(), std::move(expected), std::move(got), std::move(todo)});
}

}  // namespace doppler::jinja
