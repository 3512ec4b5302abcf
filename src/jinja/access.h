// Getting at what is inside a value: its length, its items one by one, x.name, x[key] and x[a:b:c].
#pragma once

#include <optional>
#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

// A function or method as a value.
struct FunctionObject : Object {
  using Call = Value (*)(Runtime& rt, const Value& self, const Arguments& arguments);
  std::string_view name;
  Call call = nullptr;
  Value self;  // kMissing for a global function
  void release() override { self = Value(); }
};
Value make_function(Runtime& rt, std::string_view name, FunctionObject::Call call, Value self = Value());

// Walks over anything that can be iterated. Fails at once on anything else.
class Cursor {
 public:
  Cursor(Runtime& rt, Value source);
  // False at the end.
  bool next(Value& out);

 private:
  Runtime* rt_;
  Value source_;
  size_t at_ = 0;  // item, or byte of a string
};

bool is_iterable(const Value& value);
// What a view shows of entry `index` of its dict.
Value view_item(Runtime& rt, const ViewObject& view, size_t index);
// All items, as list() gives them.
Value to_list(Runtime& rt, const Value& value);
// len(), or nothing where Python has none.
std::optional<int64_t> try_length(const Value& value);
int64_t length(Runtime& rt, const Value& value);
// Items from last to first as a list, or nothing where Python's reversed() fails.
std::optional<Value> try_reversed(Runtime& rt, const Value& value);

// x.name: an attribute of the type first, then an item. Undefined when there is neither.
Value get_attribute(Runtime& rt, const Value& object, std::string_view name);
// x[key]: an item first, then an attribute.
Value get_item(Runtime& rt, const Value& object, const Value& key);
// x|attr("name"): attributes only.
Value get_only_attribute(Runtime& rt, const Value& object, std::string_view name);
// x[start:stop:step]; kMissing where left out.
Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step);

// Bounds of Python's slice over `length` items, clamped; step is not 0.
struct SliceBounds {
  int64_t start = 0, stop = 0, step = 1;
  int64_t count = 0;
};
SliceBounds slice_bounds(Runtime& rt, int64_t length, const Value& start, const Value& stop, const Value& step);

}  // namespace doppler::jinja
