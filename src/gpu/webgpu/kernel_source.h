// A kernel as the build-time generator hands it over (tools/gen_kernels.cpp reads ops/<op>.wgsl), and the choice of
// one variant of it.
//
// WGSL stays WGSL: no preprocessor. A kernel file may name snippets in lines of the form
//     // use: index                    ops/lib/index.wgsl is added
//     // use: reduce = plain | subgroup   one of ops/lib/reduce.{plain,subgroup}.wgsl, as the variant says
// and declare `override` constants, which the variant sets.
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

// Of ops/<kernel>.wgsl, or of ops/lib/<slot>[.<choice>].wgsl.
struct SourceText {
  const char* directives;                  // its enable, requires and diagnostic lines, which must stand first
  const char* body;                        // the rest, line for line, without comments (directives leave empty lines)
  std::span<const char* const> overrides;  // names of its override constants
};

struct SlotChoice {
  const char* name;  // "" where the slot has no alternatives
  SourceText text;
};

struct Slot {
  const char* name;
  std::span<const SlotChoice> choices;
};

struct KernelSource {
  const char* name;
  SourceText main;
  std::span<const Slot> slots;
  std::span<const BindingInfo> bindings;  // group 0, by number; a uniform `params` comes first where there is one
  uint32_t params_bytes;                  // 0: no Params
};

// Which alternatives and constants make up one pipeline. Printable; equal names are equal pipelines.
struct Variant {
  std::vector<std::pair<std::string, std::string>> slots;  // {"reduce", "subgroup"}
  std::vector<std::pair<std::string, double>> constants;   // {"threads", 256}

  std::string name() const;  // "reduce=subgroup threads=256"
  bool operator==(const Variant&) const = default;
};

struct ComposedSource {
  struct Part {
    int first_line;  // of the composed text, from 1
    std::string file;
  };
  std::string text;
  std::vector<Part> parts;

  // "ops/lib/reduce.plain.wgsl:12" for a line of `text`.
  std::string locate(int line) const;
};

// Fails (kInternal) if the variant does not name every slot with alternatives, or names one that is not there.
ComposedSource compose(const KernelSource& source, const Variant& variant);

}  // namespace doppler::gpu
