// A kernel as the build-time generator hands it over (tools/gen_kernels.cpp reads ops/*.wgsl), and the choice of one
// variant of it.
//
// WGSL stays WGSL: no preprocessor. A kernel names the snippets it is composed with in lines of the form
//     // use: index                       the snippet `index` is added
//     // use: reduce = plain | subgroup   one of the snippets `reduce = plain` and `reduce = subgroup`, as the variant
//     says
//     // use: weights = *                 one of all snippets `weights = …`
// and declares `override` constants, which the variant sets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace doppler::gpu {

enum class BindingType : uint8_t { kUniform, kReadStorage, kStorage };

struct BindingInfo {
  const char* name;
  uint32_t binding;
  BindingType type;
  uint64_t min_bytes;  // 0: not known from the declaration
};

// Of a kernel or a snippet: a section of a file.
struct SourceText {
  const char* directives;                  // its enable, requires and diagnostic lines, which must stand first
  const char* body;                        // the rest, line for line, without comments (directives leave empty lines)
  std::span<const char* const> overrides;  // names of its override constants
  const char* file = "";                   // "ops/lib/sums.wgsl"
  int first_line = 1;                      // of the section, in the file
};

struct SnippetChoice {
  const char* name;  // "" where there are no alternatives
  SourceText text;
};

struct Snippet {
  const char* name;
  std::span<const SnippetChoice> choices;
};

struct KernelSource {
  const char* name;
  SourceText main;
  std::span<const Snippet> snippets;
  std::span<const BindingInfo> bindings;  // group 0, by number; a uniform `params` comes first where there is one
  uint32_t params_bytes;                  // 0: no Params
};

// Which alternatives and constants make up one pipeline. Printable; equal names are equal pipelines.
struct Variant {
  std::vector<std::pair<std::string, std::string>> snippets;  // {"reduce", "subgroup"}
  std::vector<std::pair<std::string, double>> constants;      // {"threads", 256}

  std::string name() const;  // "reduce=subgroup threads=256"
  bool operator==(const Variant&) const = default;
};

struct ComposedSource {
  struct Part {
    int first_line;  // of the composed text, from 1
    std::string file;
    int file_line;  // where in the file that is
  };
  std::string text;
  std::vector<Part> parts;

  // "ops/lib/sums.wgsl:12" for a line of `text`.
  std::string locate(int line) const;
};

// Fails (kInternal) if the variant does not name every snippet with alternatives, or names one that is not there.
ComposedSource compose(const KernelSource& source, const Variant& variant);

}  // namespace doppler::gpu
