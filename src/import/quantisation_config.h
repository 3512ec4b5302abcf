// What config.json says of the quantisation of a checkpoint: which program's it is, what its tensors do not tell, and
// which modules it left alone.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "format/quantised_rows.h"

namespace doppler {

// "quantization_config", or null where there is none.
const Json* quantisation_of(const Json& hf_config);

// Fails, naming the method, where it is one whose tensors cannot be decoded. `also` are methods that the family reads
// in a way of its own (null: none).
void check_quantisation(const Json& quantisation, const Json* also, const std::string& where);

QuantisedLayout layout_of(const Json* quantisation);

// Modules that were left as they were, under the key of whichever program wrote the list: names, globs, or "re:" and a
// regular expression.
std::vector<std::string> unquantised_modules(const Json& hf_config);
bool matches_module(const std::string& pattern, const std::string& tensor);

}  // namespace doppler
