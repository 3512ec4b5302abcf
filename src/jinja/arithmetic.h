// Python's arithmetic on whole numbers (of 64 bits: more is an error, never a wrong answer) and floats.
#pragma once

#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

// Both are numbers; op is one of + - * / // % **.
Value arithmetic(Runtime& rt, std::string_view op, const Value& a, const Value& b);

// round(value, digits) as Python does it: half to even, on the exact decimal value.
Value round_to(Runtime& rt, const Value& number, int64_t digits);
// int(value) of a float; fails where it is not finite.
Value truncate(Runtime& rt, double value);

}  // namespace doppler::jinja
