// Tests: {{ value is name(arguments) }}.
#pragma once

#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

// Whether jinja2 has a test of this name.
bool is_test(std::string_view name);
// Fails when there is none.
bool call_test(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments);

}  // namespace doppler::jinja
