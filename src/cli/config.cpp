#include "cli/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "cli/nested_config.h"

namespace doppler {
namespace {

struct ConfigPreset {
  const char *name, *json;
};
constexpr ConfigPreset kPresets[] = {
    {"default", R"({"log": "info"})"},
    {"bench", R"({"log": "silent", "no_self_test": true, "decode_batch": 16, "runs": 5})"},
    {"debug", R"({"log": "verbose", "trace": "all", "nan_check": true})"},
};

std::string option_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

const ConfigPreset* find_preset(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kPresets), std::end(kPresets), [&](const ConfigPreset& p) { return p.name == name; });
  return found == std::end(kPresets) ? nullptr : found;
}

void merge(Config& config, const Json& json, const std::string& source) {
  if (!json.is_object()) {
    fail({.code = ErrorCode::kFormat,
          .what = "a config must be an object of options",
          .where = source,
          .expected = "{\"key\": value, …}",
          .got = brief(json)});
  }
  const Json* preset = find(json, "preset");
  if (!preset) preset = find(json, "extends");
  if (preset) {
    const ConfigPreset* found = preset->is_string() ? find_preset(preset->get<std::string>()) : nullptr;
    if (!found) {
      fail({.code = ErrorCode::kUsage,
            .what = "an unknown preset",
            .where = source,
            .expected = "default, bench or debug",
            .got = brief(*preset)});
    }
    merge(config, parse_json(found->json, found->name), fmt::format("preset {}", found->name));
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "runtime") {
      const Json flat = flat_config(value, source);
      for (const auto& [name, setting] : flat.items()) config[name] = {setting, source};
    } else if (key != "preset" && key != "extends") {
      config[key] = {value, source};
    }
  }
}

void add_source(Config& config, const std::string& word) {
  if (const ConfigPreset* preset = find_preset(word)) {
    merge(config, parse_json(preset->json, preset->name), "preset " + word);
  } else if (word.find('{') != std::string::npos) {
    merge(config, parse_json(word, "--config"), "--config");
  } else {
    merge(config, parse_json(read_input(word), word), "file " + word);
  }
}

std::vector<Verb> all_verbs(const Verb& program) {
  std::vector<Verb> list;
  for (const Verb& verb : program.verbs()) {
    list.push_back(verb);
    for (const Verb& inner : all_verbs(verb)) list.push_back(inner);
  }
  return list;
}

// The verb that the arguments name ("bench inference"), if they do.
std::optional<Verb> named_verb(const Verb& program, const std::vector<std::string>& arguments) {
  std::optional<Verb> found;
  for (const std::string& word : arguments) {
    const std::vector<Verb> verbs = (found ? *found : program).verbs();
    const auto next = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& verb) { return verb.name() == word; });
    if (next == verbs.end()) break;
    found = *next;
  }
  return found;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void add_arguments(const std::string& key, const ConfigValue& entry, std::vector<std::string>& out) {
  const std::string name = option_of(key);
  if (entry.value.is_boolean()) {
    if (entry.value.get<bool>()) out.push_back(name);
  } else if (entry.value.is_array()) {
    for (const Json& element : entry.value) out.push_back(name + "=" + text_of(element));
  } else if (entry.value.is_object() || entry.value.is_null()) {
    fail({.code = ErrorCode::kFormat,
          .what = "an option's value must be a word, a number, true or false, or a list",
          .where = entry.source,
          .got = key});
  } else {
    out.push_back(name + "=" + text_of(entry.value));
  }
}

void show(const Verb& program, const Config& config, const std::vector<std::string>& words) {
  std::vector<Verb> verbs;
  if (const std::optional<Verb> verb = named_verb(program, words)) {
    verbs.push_back(*verb);
  } else if (!words.empty()) {
    fail({.code = ErrorCode::kUsage, .what = "there is no such verb", .where = "config --show", .got = words[0]});
  } else {
    verbs = all_verbs(program);
  }
  fmt::print("{:<20} {:<28} {}\n", "key", "value", "from");
  const auto print_options = [&](const Verb& owner) {
    for (const Verb::Declared& option : owner.options()) {
      if (option.name == "help" || option.name == "version" || option.name == "config") continue;
      std::string key = option.name;
      std::replace(key.begin(), key.end(), '-', '_');
      const auto set = config.find(key);
      fmt::print("{:<20} {:<28} {}\n", key,
                 set != config.end()        ? text_of(set->second.value)
                 : option.otherwise.empty() ? "–"
                                            : option.otherwise,
                 set != config.end() ? set->second.source : "default");
    }
  };
  print_options(program);
  for (const Verb& verb : verbs) {
    if (verb.name() == "config") continue;
    if (verbs.size() > 1) fmt::print("── {}\n", verb.name());
    print_options(verb);
  }
}

}  // namespace

Config take_config(std::vector<std::string>& arguments) {
  Config config;
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config") {
      if (i + 1 == arguments.size()) {
        fail({.code = ErrorCode::kUsage,
              .what = "--config needs a file, JSON or a preset",
              .expected = "default, bench or debug"});
      }
      add_source(config, arguments[++i]);
    } else if (arguments[i].compare(0, 9, "--config=") == 0) {
      add_source(config, arguments[i].substr(9));
    } else if (arguments[i] == "--debug" || arguments[i] == "--verbose" || arguments[i] == "--quiet") {
      const char* const log = arguments[i] == "--quiet" ? "silent" : "verbose";
      if (arguments[i] == "--debug") {
        add_source(config, "debug");
      } else {
        merge(config, {{"log", log}}, arguments[i]);
      }
      kept.push_back(arguments[i]);
    } else {
      kept.push_back(arguments[i]);
    }
  }
  arguments = std::move(kept);
  return config;
}

void apply_config(const Config& config, const Verb& program, std::vector<std::string>& arguments) {
  const std::optional<Verb> verb = named_verb(program, arguments);
  std::vector<std::string> added;
  for (const auto& [key, entry] : config) {
    const std::string name = option_of(key);
    bool known = program.has_option(name);
    for (const Verb& any : all_verbs(program)) known = known || any.has_option(name);
    if (!known) {
      fail({.code = ErrorCode::kUsage,
            .what = "an unknown key in a config",
            .where = entry.source,
            .expected = "an option's name, with underscores",
            .got = key,
            .todo = "doppler config --show lists them"});
    }
    const bool ours = verb && (verb->has_option(name) || program.has_option(name));
    const bool given = std::any_of(arguments.begin(), arguments.end(), [&](const std::string& a) {
      return a == name || a.compare(0, name.size() + 1, name + "=") == 0;
    });
    if (ours && !given && verb->name() != "config") add_arguments(key, entry, added);
  }
  arguments.insert(arguments.end(), added.begin(), added.end());  // the last option takes no word after it
}

void add_config(Verb program, const Config& config) {
  auto words = std::make_shared<std::vector<std::string>>();
  auto shown = std::make_shared<bool>(false);
  Verb verb = program.add_verb("config", "Show every option with its value and where that came from");
  verb.add_flag("--show", *shown, "Print the merged options");
  verb.add_option("verb", *words, "Only this verb's options");
  verb.footer(
      "Any verb takes --config FILE, --config '{\"temperature\": 0.7}' or a preset: default, bench, debug.\n"
      "Example:\n  doppler config --show run --config debug --config '{\"temperature\": 0.7}'");
  verb.callback([program, config, words, shown] { show(program, config, *words); });
}

}  // namespace doppler
