#pragma once

#include "convert/config_reader.h"
#include "convert/family.h"

namespace doppler {

// Fills ModelConfig::layers and ::ropes from the family's "layers" and "ropes", in both dialects of config.json:
// rope_theta / rope_scaling / a pattern (transformers 4), and rope_parameters / layer_types (transformers 5).
void read_layers(ModelConfig& config, const Family& family, ConfigReader& reader);

}  // namespace doppler
