#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <type_traits>

#include "base/error.h"

namespace doppler {
namespace {

std::vector<CLI::App*> inner_verbs(CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// What CLI11 takes for a number though it is none: nothing for 0, and what is too large for the largest.
std::string number_fault(const std::string& text) {
  if (text.empty()) return "a number is needed, and nothing was given";
  errno = 0;
  std::strtoull(text.c_str(), nullptr, 0);
  return errno == ERANGE ? text + " is too large" : "";
}

// And −1 for the largest that has no sign.
std::string unsigned_fault(const std::string& text) {
  return text.starts_with('-') ? text + " is negative" : number_fault(text);
}

}  // namespace

bool Option::given() const { return option_ && option_->count() > 0; }

Option Option::required() { return Option(option_->required()); }
Option Option::positive() { return Option(option_->check(CLI::PositiveNumber)); }
Option Option::not_negative() { return Option(option_->check(CLI::NonNegativeNumber)); }
Option Option::range(int least, int most) { return Option(option_->check(CLI::Range(least, most))); }
Option Option::one_of(const std::vector<std::string>& words) { return Option(option_->check(CLI::IsMember(words))); }
Option Option::existing_file() { return Option(option_->check(CLI::ExistingFile)); }
Option Option::byte_size() {
  option_->transform(CLI::AsSizeValue(false));
  return Option(option_->transform(CLI::Validator(unsigned_fault, "")));  // the last that is added looks first
}
Option Option::check(const std::function<std::string(const std::string&)>& fault) {
  return Option(option_->check(fault));
}
Option Option::expected(int least, int most) { return Option(option_->expected(least, most)); }
Option Option::repeatable() { return Option(option_->expected(1)->take_all()); }
Option Option::delimiter(char between) { return Option(option_->delimiter(between)); }
Option Option::one_word() { return Option(option_->allow_extra_args(false)); }
Option Option::show_default() { return Option(option_->capture_default_str()); }
Option Option::default_text(const std::string& text) { return Option(option_->default_str(text)); }
Option Option::type_name(const std::string& name) { return Option(option_->type_name(name)); }
Option Option::help_text(const std::string& text) { return Option(option_->option_text(text)); }

Verb Verb::add_verb(const std::string& name, const std::string& about) {
  return Verb(app_->add_subcommand(name, about));
}

template <class T>
Option Verb::add_option(const std::string& name, T& variable, const std::string& help) {
  CLI::Option* const option = app_->add_option(name, variable, help);
  if constexpr (std::is_unsigned_v<T>) {
    option->check(unsigned_fault);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::vector<int>>) {
    option->check(number_fault);
  }
  return Option(option);
}
template Option Verb::add_option(const std::string&, std::string&, const std::string&);
template Option Verb::add_option(const std::string&, int&, const std::string&);
template Option Verb::add_option(const std::string&, uint64_t&, const std::string&);
template Option Verb::add_option(const std::string&, float&, const std::string&);
template Option Verb::add_option(const std::string&, double&, const std::string&);
template Option Verb::add_option(const std::string&, std::filesystem::path&, const std::string&);
template Option Verb::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Verb::add_option(const std::string&, std::vector<int>&, const std::string&);

Option Verb::add_option_function(const std::string& name, const std::function<void(const std::string&)>& take,
                                 const std::string& help) {
  return Option(app_->add_option_function<std::string>(name, take, help));
}

Option Verb::add_option(const std::string& name, const std::string& help) {
  return Option(app_->add_option(name, help));
}

void Verb::add_flag(const std::string& name, bool& variable, const std::string& help) {
  app_->add_flag(name, variable, help);
}

void Verb::footer(const std::string& text) { app_->footer(text); }
void Verb::callback(std::function<void()> work) { app_->callback(std::move(work)); }
void Verb::finish(bool& json, const std::string& text, std::function<void()> work) {
  add_flag("--json", json, "Print one JSON object");
  footer(text);
  callback(std::move(work));
}
void Verb::need_verb() { app_->require_subcommand(1); }
void Verb::hide() { app_->group(""); }

std::string Verb::name() const { return app_->get_name(); }

std::vector<Verb> Verb::verbs() const {
  std::vector<Verb> list;
  for (CLI::App* inner : inner_verbs(*app_)) list.emplace_back(inner);
  return list;
}

bool Verb::has_option(const std::string& name) const { return app_->get_option_no_throw(name) != nullptr; }

std::vector<Verb::Declared> Verb::options() const {
  std::vector<Declared> list;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_lnames().empty()) continue;
    list.push_back({option->get_lnames()[0], option->get_expected_max() == 0 ? "false" : option->get_default_str()});
  }
  return list;
}

CommandLine::CommandLine(const std::string& name, const std::string& about, const std::string& version)
    : Verb(nullptr), owned_(std::make_unique<CLI::App>(about, name)) {
  app_ = owned_.get();
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

int CommandLine::run(std::vector<std::string> arguments) {
  for (CLI::App* verb : inner_verbs(*app_)) {
    verb->fallthrough();
    for (CLI::App* inner : inner_verbs(*verb)) inner->fallthrough();
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app_->parse(arguments);
  } catch (const CLI::ParseError& error) {
    const int code = app_->exit(error);  // prints help, the version, or what was wrong
    return code == 0 ? 0 : exit_code(ErrorCode::kUsage);
  }
  return 0;
}

}  // namespace doppler
