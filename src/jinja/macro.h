// A macro as a value.
#pragma once

#include "jinja/ast.h"
#include "jinja/runtime.h"

namespace doppler::jinja {

struct MacroObject : Object {
  const MacroDefinition* definition = nullptr;
  Value scope;  // kScope: the variables around its definition
  int line = 0;
  void release() override { scope = Value(); }
};

inline void print_macro(const MacroObject& macro, TextBuilder& out) {
  const std::string& name = macro.definition->name;
  out.add(name.empty() ? "<Macro anonymous>" : "<Macro '" + name + "'>");
}

}  // namespace doppler::jinja
