// What a command takes: the little of CLI11 that is used here. arguments.cpp alone includes CLI11: its header takes 6 s of compilation in
// each file.
//
//   Command command = app.add_command("search", "find the nearest rows");
//   const Option k = command.add_option("-k", options->k, "neighbours of each query").show_default();
//   command.add_option("--radius", options->radius, "instead of -k").excludes(k);
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gigaknn::cli {

/// An option of a command, owned by CLI11; what is asked of it returns it again.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required() const;
  /// The help says what the value is before arguments are read.
  Option show_default() const;
  /// Heading of the help under which it stands.
  Option group(const std::string& heading) const;
  /// How many values it takes.
  Option expected(int least, int most) const;
  Option needs(Option other) const;
  Option excludes(Option other) const;
  /// Whether the arguments, once they are read, have it.
  bool given() const;
  /// The same, set as soon as they are read; `is_given` must outlive the parser.
  Option tell(bool& is_given) const;

 private:
  CLI::Option* option_;
};

/// A command, or the program itself that commands are added to; owned by CLI11.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_command(const std::string& name, const std::string& help) const;
  /// An option with a value, or with a `name` without dashes an argument by its place. `value` must outlive the parser; its type is one of
  /// those at the end of arguments.cpp.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help) const;
  Option add_flag(const std::string& name, bool& value, const std::string& help) const;
  /// A flag that sets nothing.
  Option add_flag(const std::string& name, const std::string& help) const;
  /// One that was added.
  Option option(const std::string& name) const;
  /// Adds examples to the end of the help.
  void add_examples(const std::string& examples) const;
  /// Called when all is parsed, if this is the command.
  void callback(const std::function<void()>& parsed) const;

 private:
  CLI::App* app_;
};

/// Reads the arguments of the program; holds its commands and their options.
class Parser {
 public:
  /// The help begins with `help` and ends with `footer`; --version prints `version`.
  Parser(const std::string& help, const std::string& version, const std::string& footer);
  ~Parser();

  Command program() const { return Command(app_.get()); }
  /// Sets the values and calls back the command. False where the help or the version was asked for, which it prints. Throws Error:
  /// invalid_argument.
  bool parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace gigaknn::cli
