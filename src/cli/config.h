// Options from files: --config FILE, --config '{"temperature": 0.7}' or --config PRESET, any number of them. A key is
// an option's name with underscores; what stands on the command line wins, then the last --config.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/verbs.h"

namespace doppler {

struct ConfigValue {
  Json value;
  std::string source;  // "preset debug", "file my.json", "--config"
};
using Config = std::map<std::string, ConfigValue>;

// Takes every --config out of the arguments and merges them, presets first where a config names one by its key
// "preset" or "extends"; --debug is the preset of this name, --verbose and --quiet are levels of --log. Nested keys
// below "runtime" become ours (nested_config.h). Fails for a file that is none.
Config take_config(std::vector<std::string>& arguments);

// Adds the options that the config sets and the arguments do not. A key that no verb
// has is an error; one of another verb's is passed over.
void apply_config(const Config& config, const Verb& program, std::vector<std::string>& arguments);

// `doppler config --show [VERB …]`
void add_config(Verb program, const Config& config);

}  // namespace doppler
