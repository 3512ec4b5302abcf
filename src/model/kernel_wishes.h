// Kernels chosen by hand: which variant of a kind of step runs, where a backend would choose by itself.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

// By kind of step, words with dots between: {"matmul", "int8.t64"}. Empty: the backend chooses.
using KernelWishes = std::map<std::string, std::string>;

// What a backend can run of a kind on this device for this model, the words of a variant with dots between:
// {"matmul", {"int8.128x64.t64.r4t8.b2.s1", …}}.
struct KernelKind {
  std::string kind;
  std::vector<std::string> variants;
};

// "matmul=int8.t64,attention=plain"; nothing is no wish. Fails (kUsage) for a text of another form.
KernelWishes parse_kernel_wishes(const std::string& text);

// Is every word of the wish a word of the variant?
bool names_variant(std::string_view wish, std::string_view variant);

// Fails (kUsage) for a kind that is not there, or words that no variant of it has, with the list of what is.
void check_kernel_wishes(const KernelWishes& wishes, std::span<const KernelKind> kinds, std::string_view backend);

// The wish for a kind; empty where there is none.
std::string_view wish_for(const KernelWishes& wishes, const std::string& kind);

}  // namespace doppler
