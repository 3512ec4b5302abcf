// Python's two ways to fill values into a string.
#pragma once

#include "jinja/runtime.h"

namespace doppler::jinja {

// "%s is %d" % values: a tuple, a dict, or one value.
Value format_percent(Runtime& rt, const Value& format, const Value& values);

// "{} is {name:>8}".format(...).
Value format_braces(Runtime& rt, const Value& format, const Arguments& arguments);

}  // namespace doppler::jinja
