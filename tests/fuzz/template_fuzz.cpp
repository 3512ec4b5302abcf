// Throws templates at the interpreter: whatever they hold, they may fail with a Failure and nothing else.
//
// The input is a template, then optionally a zero byte and JSON that becomes the variables. Where there is no JSON, or
// none that parses, a conversation with tools takes its place.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "jinja/template.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using doppler::Json;

const Json& conversation() {
  static const Json variables = doppler::parse_json(
      R"({"messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "größe 😀?"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1.5]}}}]},
          {"role": "tool", "content": [{"type": "text", "text": "<b>"}]}],
          "tools": [{"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "n": -3, "s": "Hello World", "l": [3, 1, 2]})",
      "fuzz");
  return variables;
}

// Recorded templates, to splice in: bytes alone seldom grow into a macro.
const std::vector<std::string>& seeds() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    for (const char* name : {"expressions", "statements", "whitespace", "syntax", "chat", "random_scopes"}) {
      const std::string path = std::string(DOPPLER_TEST_DATA "/templates/") + name + ".json";
      const Json file = doppler::parse_json(doppler::read_text_file(path), path);
      for (const Json& each : doppler::require_array(file, "cases", path)) {
        out.push_back(doppler::require_string(each, "template", path));
      }
    }
    return out;
  }();
  return all;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 3 != 0) return LLVMFuzzerMutate(data, size, max_size);
  // A piece of a recorded template, put in somewhere.
  const std::string& source = seeds()[random() % seeds().size()];
  size_t begin = 0, length = source.size();
  if (random() % 2 == 0 && !source.empty()) {
    begin = random() % source.size();
    length = 1 + random() % (source.size() - begin);
  }
  const size_t at = size == 0 ? 0 : random() % size;
  if (size + length > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memmove(data + at + length, data + at, size - at);
  std::memcpy(data + at, source.data() + begin, length);
  return size + length;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  Json variables = conversation();
  try {
    if (zero < input.size()) variables = doppler::parse_json(input.substr(zero + 1), "fuzz");
  } catch (const doppler::Failure&) {
  }
  doppler::jinja::RenderOptions options;
  options.limits.steps = 200'000;
  options.limits.memory_bytes = 16 << 20;
  options.limits.output_bytes = 1 << 20;
  try {
    const auto parsed = doppler::jinja::Template::parse(input.substr(0, zero), "fuzz");
    const std::string text = parsed.render(variables, options);
    if (doppler::find_invalid_utf8(text) != text.size()) std::abort();  // text in, text out
  } catch (const doppler::Failure&) {
  }
  return 0;
}
