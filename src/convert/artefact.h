// What writing an artefact from a checkpoint and from nothing have in common.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "convert/recipe.h"
#include "format/rdrr.h"
#include "import/family.h"
#include "model/model_config.h"

namespace doppler {

// One line of the table at the end: all tensors of one class and dtype.
struct ClassReport {
  QuantClass quant = QuantClass::kKeep;
  DType dtype = DType::kF32;
  uint64_t tensors = 0, weights = 0, bytes = 0;
  double error_squares = 0, source_squares = 0;  // Σ (stored − source)², Σ source²

  double bits_per_weight() const;
  double relative_error() const;  // ‖stored − source‖ / ‖source‖
};

struct ArtefactReport {
  std::vector<ClassReport> classes;  // in order of first appearance
  std::vector<std::string> notes;
  uint64_t weights = 0, bytes = 0;  // bytes of all shards
  int shards = 0;
  double seconds = 0;

  ClassReport& of(QuantClass quant, DType dtype);
};

// The folder as it will be called: absolute, without "." and a slash at its end.
std::filesystem::path final_name(const std::filesystem::path& folder);

// Fails if something is at `dst` already, unless it is an artefact (or an empty folder) and may be replaced.
void check_destination(const std::filesystem::path& dst, bool replace);

// Fails if the disk under `dst` has less room than this, naming both.
void check_room(const std::filesystem::path& dst, uint64_t bytes);

// The manifest without shards and tensors: identity, quantisation, the model's numbers, and what the family and the
// tensors that were written add for other readers.
Json make_manifest(const ModelConfig& config, const Family& family, const Recipe& recipe, const std::string& source,
                   const std::vector<RdrrTensorEntry>& tensors);

// Loads the tokenizer, so that one Doppler cannot use is met before the work, and returns how many tokens it knows.
// Fails where there is none, unless that is excused: then 0.
int32_t require_tokenizer(const std::filesystem::path& source, bool optional);

// Copies the files that exist and describes the tokenizer in the manifest (null where there is none, `tokens` being 0).
void copy_sidecars(const std::filesystem::path& source, const std::filesystem::path& target, int32_t tokens,
                   const ModelConfig& config, Json& manifest, std::vector<std::string>& notes);

}  // namespace doppler
