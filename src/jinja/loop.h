// The `loop` of a for loop.
#pragma once

#include <optional>
#include <string_view>

#include "jinja/access.h"

namespace doppler::jinja {

struct Stmt;

struct LoopObject : Object {
  Value source;                  // what is looped over, for its length
  std::optional<Cursor> cursor;  // over it
  int64_t index0 = -1;
  int64_t depth0 = 0;
  int64_t length = -1;              // once it is known
  Value before, current, after;     // kMissing where there is none, or not yet looked at
  Value changed;                    // what loop.changed() was last given
  const Stmt* recursive = nullptr;  // the loop, where it may be called
  Value scope;                      // kScope around a recursive loop

  bool next(Value& out);
  bool is_last();
  int64_t count(Runtime& rt);
  void release() override;
};

// loop.name, or nothing.
std::optional<Value> loop_attribute(Runtime& rt, const Value& loop, std::string_view name);
void print_loop(Runtime& rt, LoopObject& loop, TextBuilder& out);

}  // namespace doppler::jinja
