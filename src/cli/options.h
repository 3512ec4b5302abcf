// How verbs and their options are declared. A Verb and an Option are handles, copied freely; the CommandLine holds what
// they stand for. options.cpp alone knows the library that reads the command line, CLI11.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace doppler {

class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  bool given() const;  // on the command line or by a config; false for a handle of nothing

  Option required();
  Option positive();
  Option not_negative();
  Option range(int least, int most);
  Option one_of(const std::vector<std::string>& words);
  Option existing_file();
  Option byte_size();  // 4096, 512MiB or 8G
  // `fault` gives a sentence about a value that is refused, and nothing for any other.
  Option check(const std::function<std::string(const std::string&)>& fault);

  Option expected(int least, int most);  // how many values an option of several takes
  Option repeatable();                   // one value for each time it is given
  Option delimiter(char between);        // several values in one word
  Option one_word();                     // of the words after it, only the first belongs to it

  Option show_default();  // what the variable holds is the default that --help shows
  Option default_text(const std::string& text);
  Option type_name(const std::string& name);  // in --help, in place of TEXT or INT
  Option help_text(const std::string& text);  // in --help, in place of name and type

 private:
  CLI::Option* option_ = nullptr;
};

class Verb {
 public:
  explicit Verb(CLI::App* app) : app_(app) {}

  Verb add_verb(const std::string& name, const std::string& about);
  // `variable` takes the value. T is a string, an int, a uint64_t, a float, a double, a path, or a vector of strings or
  // ints. A name without dashes is a positional argument's.
  template <class T>
  Option add_option(const std::string& name, T& variable, const std::string& help);
  Option add_option_function(const std::string& name, const std::function<void(const std::string&)>& take,
                             const std::string& help);
  Option add_option(const std::string& name, const std::string& help);  // for --help; something else reads it
  void add_flag(const std::string& name, bool& variable, const std::string& help);
  void footer(const std::string& text);
  void callback(std::function<void()> work);
  // What most verbs end with: --json, and those two.
  void finish(bool& json, const std::string& text, std::function<void()> work);
  void need_verb();  // one of its verbs must be named
  void hide();       // from --help

  // What was declared.
  struct Declared {
    std::string name;       // without dashes
    std::string otherwise;  // the default's text
  };
  std::string name() const;
  std::vector<Verb> verbs() const;
  bool has_option(const std::string& name) const;  // "--name"
  std::vector<Declared> options() const;           // those with a long name

 protected:
  CLI::App* app_;
};

class CommandLine : public Verb {
 public:
  CommandLine(const std::string& name, const std::string& about, const std::string& version);
  ~CommandLine();

  // Reads the arguments and does the work of the verb they name. Whatever is wrong with them is printed, as is help
  // that was asked for; the result is the program's exit code. The options of the program may stand after a verb, too.
  int run(std::vector<std::string> arguments);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace doppler
