// What masks cost with a vocabulary of 262,144 tokens: making the trie, compiling, and the mask of each step of an
// answer, the first time and when its parts are known.
//
//   grammar_bench [FOLDER]     a folder with a tokenizer.json; by default the one of the tests
//
// Exits with 1 if the median of a step whose parts are known takes more than 50 µs of processor time: a twentieth of a
// decode step of 1 ms.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace doppler {
namespace {

constexpr double kLimitUs = 50;

double now_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// Microseconds of mask and accept for each token.
std::vector<double> steps(const TokenGrammar& grammar, const std::vector<int32_t>& tokens) {
  const auto constraint = grammar.begin();
  std::vector<double> times;
  for (const int32_t token : tokens) {
    const double begin = now_us();
    const bool allowed = constraint->allowed().has(token);
    if (!allowed || !constraint->accept(token)) fmt::print("token {} is not allowed\n", token);
    times.push_back(now_us() - begin);
  }
  return times;
}

int measure(const std::string& folder) {
  const Tokenizer tokenizer = Tokenizer::load(folder);
  double begin = now_us();
  const auto trie = TokenTrie::make(tokenizer);
  fmt::print("trie of {} tokens: {:.0f} ms, {} nodes\n", trie->vocab_size(), (now_us() - begin) / 1e3,
             trie->nodes().size());
  const std::pair<const char*, std::string> schemas[] = {
      {"any object", R"({"type": "object"})"},
      {"a record", R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 200},
        "text": {"type": "string"}, "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
        "score": {"type": "number"}}, "required": ["name", "text", "tags", "score"]})"}};
  const std::string answer =
      R"({"name": "A longer name of a thing", "text": "Some words in a row, with \"quotes\" and a line\nbreak, that go on )"
      R"(for a while so that most of the time is spent inside of a string.", "tags": ["red", "blue"], "score": 12.75})";
  const std::vector<int32_t> tokens = tokenizer.encode(answer, false);
  bool kept = true;
  for (const auto& [name, schema] : schemas) {
    begin = now_us();
    const auto grammar = grammar_from_json_schema(schema, name, trie);
    const double compiled = now_us() - begin;
    std::vector<double> first = steps(*grammar, tokens), known = steps(*grammar, tokens);
    std::sort(first.begin(), first.end());
    std::sort(known.begin(), known.end());
    const auto line = [](const std::vector<double>& t) {
      return fmt::format("median {:.1f}, 90 % {:.1f}, at most {:.1f} µs", t[t.size() / 2], t[t.size() * 9 / 10],
                         t.back());
    };
    fmt::print("{}: compiled in {:.1f} ms; {} steps; first time {}; then {}\n", name, compiled / 1e3, tokens.size(),
               line(first), line(known));
    kept = kept && known[known.size() / 2] < kLimitUs;
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace doppler

int main(int argc, char** argv) {
  const char* set = std::getenv("DOPPLER_TOKENIZERS");
  return doppler::measure(argc > 1 ? argv[1] : std::string(set ? set : DOPPLER_BINARY_DIR "/tokenizers") + "/gemma3");
}
