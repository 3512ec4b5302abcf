#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace doppler {

// Fails by name at the first key that says how a model computes and that read_model_config neither reads nor knows to
// make no difference at its value.
void check_manifest_keys(const Json& manifest, const std::string& where);

// The public format has room for two rotary embeddings, told apart by the prefix of their keys.
std::string local_rope_key(std::string_view global_name);

}  // namespace doppler
