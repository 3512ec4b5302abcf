#include "gpu/webgpu/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace doppler::gpu {
namespace {

[[noreturn]] void wrong_variant(const KernelSource& source, const Variant& variant, std::string what) {
  fail({ErrorCode::kInternal, std::move(what), fmt::format("kernel {} [{}]", source.name, variant.name()), "", "", ""});
}

const SlotChoice& chosen(const KernelSource& source, const Variant& variant, const Slot& slot) {
  if (slot.choices.size() == 1) return slot.choices[0];
  for (const auto& [name, choice] : variant.slots) {
    if (name != slot.name) continue;
    for (const SlotChoice& candidate : slot.choices) {
      if (choice == candidate.name) return candidate;
    }
    wrong_variant(source, variant, fmt::format("slot {} has no choice called '{}'", slot.name, choice));
  }
  wrong_variant(source, variant, fmt::format("nothing is chosen for slot {}", slot.name));
}

}  // namespace

std::string Variant::name() const {
  std::string out;
  for (const auto& [slot, choice] : slots) out += fmt::format("{}{}={}", out.empty() ? "" : " ", slot, choice);
  for (const auto& [constant, value] : constants)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", constant, value);
  return out;
}

std::string ComposedSource::locate(int line) const {
  for (size_t i = parts.size(); i-- > 0;) {
    if (line >= parts[i].first_line) return fmt::format("{}:{}", parts[i].file, line - parts[i].first_line + 1);
  }
  return "directives";
}

ComposedSource compose(const KernelSource& source, const Variant& variant) {
  std::vector<const SourceText*> texts;
  std::vector<std::string> files;
  for (const Slot& slot : source.slots) {
    const SlotChoice& choice = chosen(source, variant, slot);
    const std::string_view name = choice.name;
    texts.push_back(&choice.text);
    files.push_back(fmt::format("ops/lib/{}{}{}.wgsl", slot.name, name.empty() ? "" : ".", name));
  }
  texts.push_back(&source.main);
  files.push_back(fmt::format("ops/{}.wgsl", source.name));
  for (const auto& [name, choice] : variant.slots) {
    if (std::none_of(source.slots.begin(), source.slots.end(), [&](const Slot& s) { return name == s.name; })) {
      wrong_variant(source, variant, fmt::format("there is no slot {}", name));
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
  for (size_t i = 0; i < texts.size(); ++i) {
    out.parts.push_back({line, files[i]});
    const std::string_view body = texts[i]->body;
    line += static_cast<int>(std::count(body.begin(), body.end(), '\n'));
    out.text += body;
  }
  return out;
}

}  // namespace doppler::gpu
