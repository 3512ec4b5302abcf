#include "jinja/loop.h"

#include "jinja/operators.h"

namespace doppler::jinja {

bool LoopObject::next(Value& out) {
  Value item;
  if (!after.is_missing()) {
    item = std::move(after);
    after = Value();
  } else if (!cursor->next(item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = item;
  out = std::move(item);
  return true;
}

bool LoopObject::is_last() {
  if (after.is_missing()) {
    Value item;
    if (cursor->next(item)) after = std::move(item);
  }
  return after.is_missing();
}

int64_t LoopObject::count(Runtime& rt) {
  if (length >= 0) return length;
  if (const std::optional<int64_t> known = try_length(source)) return length = *known;
  // An iterator: read what is left of it, then go on from the copy.
  ListBuilder left(rt);
  for (Value item; cursor->next(item);) left.add(std::move(item));
  const Value list = left.finish();
  length = static_cast<int64_t>(list.items().size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
  cursor.emplace(rt, list);
  return length;
}

void LoopObject::release() {
  cursor.reset();
  source = before = current = after = changed = scope = Value();
}

namespace {

Value call_cycle(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) rt.error("loop.cycle() needs something to cycle through");
  if (!arguments.named.empty()) rt.error("loop.cycle() takes no named arguments");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(self.as<LoopObject>().index0 % count)];
}

Value call_changed(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) rt.error("loop.changed() takes no named arguments");
  LoopObject& loop = self.as<LoopObject>();
  Value now = rt.tuple(arguments.positional);
  const bool changed = loop.changed.is_missing() || !equal(rt, loop.changed, now);
  if (changed) loop.changed = std::move(now);
  return Value::boolean(changed);
}

}  // namespace

std::optional<Value> loop_attribute(Runtime& rt, const Value& self, std::string_view name) {
  LoopObject& loop = self.as<LoopObject>();
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.is_last());
  if (name == "length") return Value::integer(loop.count(rt));
  if (name == "revindex") return Value::integer(loop.count(rt) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.count(rt) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? rt.undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.is_last() ? rt.undefined("there is no next item") : loop.after;
  if (name == "cycle") return make_function(rt, "cycle", call_cycle, self);
  if (name == "changed") return make_function(rt, "changed", call_changed, self);
  return std::nullopt;
}

void print_loop(Runtime& rt, LoopObject& loop, TextBuilder& out) {
  out.add("<LoopContext " + std::to_string(loop.index0 + 1) + "/" + std::to_string(loop.count(rt)) + ">");
}

}  // namespace doppler::jinja
