#include "gpu/webgpu/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace doppler::gpu {
namespace {

[[noreturn]] void wrong_variant(const KernelSource& source, const Variant& variant, std::string what) {
  fail({.code = ErrorCode::kInternal,
        .what = std::move(what),
        .where = fmt::format("kernel {} [{}]", source.name, variant.name())});
}

const SnippetChoice& chosen(const KernelSource& source, const Variant& variant, const Snippet& snippet) {
  if (snippet.choices.size() == 1) return snippet.choices[0];
  for (const auto& [name, choice] : variant.snippets) {
    if (name != snippet.name) continue;
    for (const SnippetChoice& candidate : snippet.choices) {
      if (choice == candidate.name) return candidate;
    }
    wrong_variant(source, variant, fmt::format("snippet {} has no choice called '{}'", snippet.name, choice));
  }
  wrong_variant(source, variant, fmt::format("nothing is chosen for snippet {}", snippet.name));
}

}  // namespace

std::string Variant::name() const {
  std::string out;
  for (const auto& [snippet, choice] : snippets) out += fmt::format("{}{}={}", out.empty() ? "" : " ", snippet, choice);
  for (const auto& [constant, value] : constants)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", constant, value);
  return out;
}

std::string ComposedSource::locate(int line) const {
  for (size_t i = parts.size(); i-- > 0;) {
    if (line >= parts[i].first_line)
      return fmt::format("{}:{}", parts[i].file, line - parts[i].first_line + parts[i].file_line);
  }
  return "directives";
}

ComposedSource compose(const KernelSource& source, const Variant& variant) {
  std::vector<const SourceText*> texts;
  for (const Snippet& snippet : source.snippets) texts.push_back(&chosen(source, variant, snippet).text);
  texts.push_back(&source.main);
  for (const auto& [name, choice] : variant.snippets) {
    if (std::none_of(source.snippets.begin(), source.snippets.end(),
                     [&](const Snippet& s) { return name == s.name; })) {
      wrong_variant(source, variant, fmt::format("there is no snippet {}", name));
    }
  }
  for (const auto& [name, value] : variant.constants) {
    const bool known = std::any_of(texts.begin(), texts.end(), [&](const SourceText* text) {
      return std::any_of(text->overrides.begin(), text->overrides.end(), [&](const char* o) { return name == o; });
    });
    if (!known) wrong_variant(source, variant, fmt::format("there is no override constant {}", name));
  }

  ComposedSource out;
  for (const SourceText* text : texts) out.text += text->directives;
  int line = 1 + static_cast<int>(std::count(out.text.begin(), out.text.end(), '\n'));
  for (const SourceText* text : texts) {
    out.parts.push_back({line, text->file, text->first_line});
    const std::string_view body = text->body;
    line += static_cast<int>(std::count(body.begin(), body.end(), '\n'));
    out.text += body;
  }
  return out;
}

}  // namespace doppler::gpu
