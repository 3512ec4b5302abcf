#include "model/kernel_wishes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace doppler {
namespace {

std::vector<std::string_view> words_between(std::string_view text, char mark) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(mark, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

KernelWishes parse_kernel_wishes(const std::string& text) {
  KernelWishes wishes;
  if (text.empty()) return wishes;
  for (const std::string_view part : words_between(text, ',')) {
    const size_t equals = part.find('=');
    const std::string kind(part.substr(0, equals));
    const std::string variant(equals == std::string_view::npos ? "" : part.substr(equals + 1));
    if (kind.empty() || variant.empty() || !wishes.emplace(kind, variant).second) {
      fail({.code = ErrorCode::kUsage,
            .what = "kernels that cannot be read",
            .where = "--kernel",
            .expected = "KIND=VARIANT,… with every kind once",
            .got = text});
    }
  }
  return wishes;
}

bool names_variant(std::string_view wish, std::string_view variant) {
  const std::vector<std::string_view> words = words_between(variant, '.');
  const std::vector<std::string_view> wanted = words_between(wish, '.');
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](std::string_view word) { return std::count(words.begin(), words.end(), word) > 0; });
}

void check_kernel_wishes(const KernelWishes& wishes, std::span<const KernelKind> kinds, std::string_view backend) {
  for (const auto& [kind, variant] : wishes) {
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const KernelKind& k) { return k.kind == kind; });
    std::vector<std::string> names;
    if (found == kinds.end()) {
      for (const KernelKind& k : kinds) names.push_back(k.kind);
      fail({.code = ErrorCode::kUsage,
            .what = fmt::format("the {} backend has no kernels of this kind to choose from", backend),
            .where = "--kernel",
            .expected = names.empty() ? "no --kernel" : fmt::format("one of {}", fmt::join(names, ", ")),
            .got = kind});
    }
    const auto fits = [&](const std::string& name) { return names_variant(variant, name); };
    if (std::any_of(found->variants.begin(), found->variants.end(), fits)) continue;
    fail({.code = ErrorCode::kUsage,
          .what = "no kernel that this machine can run for this model has these words",
          .where = "--kernel " + kind,
          .expected = fmt::format("words of {}", fmt::join(found->variants, ", ")),
          .got = variant});
  }
}

std::string_view wish_for(const KernelWishes& wishes, const std::string& kind) {
  const auto found = wishes.find(kind);
  return found == wishes.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace doppler
