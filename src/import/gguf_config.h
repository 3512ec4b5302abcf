// What a GGUF file's metadata says about its model, in the words of a family: "gguf" in families/*.json maps metadata
// keys to those of config.json, and slots to tensor names.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "import/family.h"

namespace doppler {

// The part of families/common.json that all architectures share.
const Json& gguf_common();

// The family whose "gguf" lists the file's general.architecture; fails naming those there are.
const Family& family_for_gguf(const GgufFile& file);

// The architecture a family is written as; fails if it has none.
std::string gguf_architecture(const Family& family);

// The names of the tensors that fill a slot: one, or two whose rows alternate. Empty if GGUF has no place for it.
std::vector<std::string> gguf_names(const Family& family, const std::string& slot);

// True for slots whose rows llama.cpp keeps in the order of rotated pairs (i and i + head_dim/2 side by side).
bool gguf_pair_rotated(const Family& family, const std::string& slot);

// True if norms are stored with the family's norm_offset already added.
bool gguf_norms_hold_offset(const Family& family);

// The model's numbers. Stops at an architecture key that nobody reads and nobody calls harmless.
ModelConfig config_from_gguf(const GgufFile& file, const Family& family, const std::set<std::string>& harmless = {});

// The tensors that hold longrope's factors.
inline constexpr const char *kShortFactors = "rope_factors_short.weight", *kLongFactors = "rope_factors_long.weight";

// llama3 scaling from the divisors of each frequency (a GGUF keeps those as a tensor, rope_freqs.weight), as
// config.json says it; null where no frequency is divided. Fails if they are no llama3 scaling.
Json llama3_scaling_from(std::span<const float> divisors, double theta, const std::string& where);

}  // namespace doppler
