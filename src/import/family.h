// A family of models, as data: families/<name>.json says which checkpoints it serves, how config.json's keys become
// ModelConfig, and what its tensors are called. families/README.md describes the file. No family is named in code.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model_config.h"

namespace doppler {

// families/*.json as the build found them (cmake/families.cmake).
struct EmbeddedFamily {
  std::string_view file, text;
};
std::span<const EmbeddedFamily> embedded_families();

struct Family {
  std::string name;
  std::string file;  // for messages
  Json json;
};

// The families in the program, and one read from a file of the user's.
const std::vector<Family>& families();
Family load_family(const std::filesystem::path& path);

// The family that serves a config.json, by its architecture or model type; fails naming those there are.
const Family& family_for(const Json& hf_config, const std::string& where);

// The numbers of the model. Stops at a key that nobody reads and nobody calls harmless, since it may change the
// mathematics; `harmless` are keys the user vouches for. The vocabulary is what the config claims (0 if nothing).
ModelConfig config_from_hf(const Family& family, const Json& hf_config, const std::string& where,
                           const std::set<std::string>& harmless = {});

// Adds generation_config.json's eos ids, where `folder` has one, before those of config.json: either list ends an
// answer.
void add_generation_ids(const std::filesystem::path& folder, ModelConfig& config);

// Sets config.embedding from modules.json, where `folder` has one (sentence_modules.h).
void add_embedding(const std::filesystem::path& folder, ModelConfig& config);

// How a checkpoint prefixes its tensors: {"body": "model.", "head": ""}.
struct TensorLayout {
  std::string body, head;
};
std::vector<TensorLayout> layouts_of(const Family& family);

// What quantisation may do to a tensor. kValue and kDown are matrices that bear less of it than others.
enum class QuantClass : uint8_t { kEmbedding, kMatrix, kValue, kDown, kExpert, kKeep };
std::string_view name_of(QuantClass quant);

struct TensorRule {
  std::string name;  // in the checkpoint; {e} is the number of an expert, where each has tensors of its own
  std::string role;  // in the artefact
  QuantClass quant = QuantClass::kKeep;
  std::string blocks, scales;  // names of the packed MXFP4 halves, where the checkpoint may hold those instead
  std::string stored =
      "";  // its name in the artefact: the checkpoint's, or the slot where no tensor is the slot's alone
  std::string second = "";                // the tensor whose rows alternate with those of `name`
  std::vector<std::string> stacked = {};  // slots whose rows lie behind each other in the tensor, this one among them
  // The rows of an expert's first half alternate with those of its second, as the slot wants them.
  bool halves = false;
};

// The rule for a slot ("layer3.q_proj"); fails if the family has none.
TensorRule rule_for(const Family& family, const std::string& slot, const TensorLayout& layout);

// The layer a slot belongs to ("layer3.q_proj" → 3), or -1.
int layer_of(std::string_view slot);

// Why a tensor of this name may be left out, or empty.
std::string why_ignored(const Family& family, const std::string& tensor);

// `*` stands for any run of characters.
bool glob_match(std::string_view pattern, std::string_view text);

// A preset of `synth` by name ("presets" of the families); fails naming those there are.
struct Preset {
  std::string name;
  const Family* family;
  const Json* config;
};
std::vector<Preset> presets();
Preset preset_named(const std::string& name);

}  // namespace doppler
