// Functions that every template can call: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <string>
#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

// kMissing where there is none of this name.
Value global_function(Runtime& rt, std::string_view name);

// The local time now, as datetime.now().strftime(format) writes it.
std::string local_time(const std::string& format);
// A time of the caller's choice (seconds since 1970, UTC).
std::string utc_time(const std::string& format, int64_t seconds);

}  // namespace doppler::jinja
