// The small parts of tokenizer.json, each a step or a sequence of steps. `where` names the place in errors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/tokenizer_spec.h"

namespace doppler {

std::vector<NormalizerStep> read_normalizer(const Json& json, const std::string& where);
std::vector<PreTokenizerStep> read_pre_tokenizer(const Json& json, const std::string& where);
std::vector<TemplatePiece> read_post_processor(const Json& json, const std::string& where);
std::optional<std::vector<DecoderStep>> read_decoder(const Json& json, const std::string& where);

}  // namespace doppler
