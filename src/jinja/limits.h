// What a template may spend, and how a fault in one names its place: "tokenizer_config.json, line 12: filter 'tojson'".
// A template comes from a file that somebody else wrote: it must not be able to run for ever, fill the memory or
// overrun the stack, in the native program as little as in a browser page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace doppler::jinja {

// Of one rendering. The defaults are far above what a conversation of a million tokens needs.
struct Limits {
  uint64_t steps = 50'000'000;           // expressions and statements evaluated, plus a share for every byte touched
  uint64_t memory_bytes = 256ull << 20;  // values alive at one time, the conversation included
  uint64_t output_bytes = 64ull << 20;   // the rendered text
  int depth = 800;                       // nested evaluations: macros calling macros, lists within lists
};

// Of the template's own text.
constexpr size_t kMaxSourceBytes = 1u << 20;
constexpr int kMaxNesting = 150;  // brackets in brackets, operators in a chain, blocks in blocks
constexpr size_t kMaxNamedArguments = 255;

// The longest range(), as in jinja2's sandbox.
constexpr int64_t kMaxRange = 100'000;

// A step's worth of copying or searching bytes, and of looking at characters one by one: each some 50 ns.
constexpr uint64_t kBytesPerStep = 64;
constexpr uint64_t kCharactersPerStep = 4;

// Where in a template we are, for error messages.
struct Location {
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

[[noreturn]] inline void fail_at(const Location& location, ErrorCode code, std::string what, std::string expected = "",
                                 std::string got = "", std::string todo = "") {
  fail({.code = code,
        .what = std::move(what),
        .where = location.text(),
        .expected = std::move(expected),
        .got = std::move(got),
        .todo = std::move(todo)});
}

}  // namespace doppler::jinja
