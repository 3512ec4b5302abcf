#include "cli/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace {

struct Preset {
  const char *name, *json;
};
constexpr Preset kPresets[] = {
    {"default", R"({"log": "info"})"},
    {"bench", R"({"log": "silent", "no_self_test": true, "decode_batch": 16, "runs": 5})"},
    {"debug", R"({"log": "verbose", "trace": "loader,perf", "nan_check": true})"},
};

std::string option_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

const Preset* find_preset(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kPresets), std::end(kPresets), [&](const Preset& p) { return p.name == name; });
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
  if (const Json* preset = find(json, "preset")) {
    const Preset* found = preset->is_string() ? find_preset(preset->get<std::string>()) : nullptr;
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
    if (key != "preset") config[key] = {value, source};
  }
}

void add_source(Config& config, const std::string& word) {
  if (const Preset* preset = find_preset(word)) {
    merge(config, parse_json(preset->json, preset->name), "preset " + word);
  } else if (word.find('{') != std::string::npos) {
    merge(config, parse_json(word, "--config"), "--config");
  } else {
    merge(config, parse_json(read_text_file(word), word), "file " + word);
  }
}

std::vector<const CLI::App*> all_verbs(const CLI::App& app) {
  std::vector<const CLI::App*> list;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    list.push_back(verb);
    for (const CLI::App* inner : all_verbs(*verb)) list.push_back(inner);
  }
  return list;
}

// The verb that the arguments name ("bench inference"), and how many words it took.
const CLI::App* named_verb(const CLI::App& app, const std::vector<std::string>& arguments, size_t& words) {
  const CLI::App* verb = &app;
  words = 0;
  while (words < arguments.size()) {
    const CLI::App* next = nullptr;
    for (const CLI::App* inner : verb->get_subcommands([](const CLI::App*) { return true; })) {
      if (inner->check_name(arguments[words])) next = inner;
    }
    if (!next) break;
    verb = next;
    ++words;
  }
  return verb == &app ? nullptr : verb;
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

void show(const CLI::App& app, const Config& config, const std::vector<std::string>& words) {
  std::vector<const CLI::App*> verbs;
  size_t used = 0;
  if (const CLI::App* verb = named_verb(app, words, used)) {
    verbs.push_back(verb);
  } else if (!words.empty()) {
    fail({.code = ErrorCode::kUsage, .what = "there is no such verb", .where = "config --show", .got = words[0]});
  } else {
    verbs = all_verbs(app);
  }
  fmt::print("{:<20} {:<28} {}\n", "key", "value", "from");
  const auto print_options = [&](const CLI::App& owner) {
    for (const CLI::Option* option : owner.get_options()) {
      if (option->get_lnames().empty() || option->get_lnames()[0] == "help" || option->get_lnames()[0] == "version" ||
          option->get_lnames()[0] == "config")
        continue;
      std::string key = option->get_lnames()[0];
      std::replace(key.begin(), key.end(), '-', '_');
      const auto set = config.find(key);
      const std::string otherwise = option->get_expected_max() == 0 ? "false" : option->get_default_str();
      fmt::print("{:<20} {:<28} {}\n", key,
                 set != config.end() ? text_of(set->second.value)
                 : otherwise.empty() ? "–"
                                     : otherwise,
                 set != config.end() ? set->second.source : "default");
    }
  };
  print_options(app);
  for (const CLI::App* verb : verbs) {
    if (verb->get_name() == "config") continue;
    if (verbs.size() > 1) fmt::print("── {}\n", verb->get_name());
    print_options(*verb);
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
    } else {
      kept.push_back(arguments[i]);
    }
  }
  arguments = std::move(kept);
  return config;
}

void apply_config(const Config& config, const CLI::App& app, std::vector<std::string>& arguments) {
  size_t words = 0;
  const CLI::App* verb = named_verb(app, arguments, words);
  std::vector<std::string> added;
  for (const auto& [key, entry] : config) {
    const std::string name = option_of(key);
    bool known = app.get_option_no_throw(name) != nullptr;
    for (const CLI::App* any : all_verbs(app)) known = known || any->get_option_no_throw(name) != nullptr;
    if (!known) {
      fail({.code = ErrorCode::kUsage,
            .what = "an unknown key in a config",
            .where = entry.source,
            .expected = "an option's name, with underscores",
            .got = key,
            .todo = "doppler config --show lists them"});
    }
    const bool ours = verb && (verb->get_option_no_throw(name) || app.get_option_no_throw(name));
    const bool given = std::any_of(arguments.begin(), arguments.end(), [&](const std::string& a) {
      return a == name || a.compare(0, name.size() + 1, name + "=") == 0;
    });
    if (ours && !given && verb->get_name() != "config") add_arguments(key, entry, added);
  }
  arguments.insert(arguments.end(), added.begin(), added.end());  // the last option takes no word after it
}

void add_config(CLI::App& app, const Config& config) {
  auto words = std::make_shared<std::vector<std::string>>();
  auto shown = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("config", "Show every option with its value and where that came from");
  verb->add_flag("--show", *shown, "Print the merged options");
  verb->add_option("verb", *words, "Only this verb's options");
  verb->footer(
      "Any verb takes --config FILE, --config '{\"temperature\": 0.7}' or a preset: default, bench, debug.\n"
      "Example:\n  doppler config --show run --config debug --config '{\"temperature\": 0.7}'");
  verb->callback([&app, config, words, shown] { show(app, config, *words); });
}

}  // namespace doppler
