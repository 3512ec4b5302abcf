// Python's operators on template values.
#pragma once

#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

bool truth(const Value& value);

bool equal(Runtime& rt, const Value& a, const Value& b);
// op is one of < <= > >=. Fails on values that have no order.
bool ordered(Runtime& rt, std::string_view op, const Value& a, const Value& b);
// Any comparison, `in` and `not in` included.
bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b);
bool contains(Runtime& rt, const Value& container, const Value& item);

// op is one of + - * / // % **.
Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b);
Value negate(Runtime& rt, const Value& value);
Value plus(Runtime& rt, const Value& value);

// The value of a key, or null. The key must be hashable.
const Value* lookup(Runtime& rt, const DictObject& dict, const Value& key);
const Value* lookup(Runtime& rt, const DictObject& dict, std::string_view key);
bool is_hashable(Runtime& rt, const Value& value);
// Puts in or replaces, as building a dict does. Fails on a key that cannot be one.
void put(Runtime& rt, std::vector<std::pair<Value, Value>>& items, Value key, Value value);

// "&lt;" for "<" and so on.
std::string escape_html(std::string_view s);

}  // namespace doppler::jinja
