// What convert and synth say at the end.
#pragma once

#include <string>

#include "base/json.h"
#include "convert/artefact.h"

namespace doppler {

// A table: a line for each class and dtype, a total, then notes. `errors` adds the relative error of each line.
std::string to_table(const ArtefactReport& report, bool errors);
Json to_json(const ArtefactReport& report, bool errors);

std::string megabytes(uint64_t bytes);  // "15.1 MB"

}  // namespace doppler
