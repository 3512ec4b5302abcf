// Configs in nested keys, {"runtime": {"shared": {"debug": …}, "inference": …, "loading": …}}, as the JavaScript engine
// of this name has them (docs/debugging.md lists them), in our flat keys.
#pragma once

#include <string>

#include "base/json.h"

namespace doppler {

// {"log": "verbose", "probe": […], …} of what stands under "runtime". Null is what nobody set. A key that has nothing
// to set here is told about in one line; fails for one that nobody knows.
Json flat_config(const Json& runtime, const std::string& source);

}  // namespace doppler
