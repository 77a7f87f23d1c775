#include "arguments.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/require.hpp"

namespace gigaknn::cli {
namespace {

/// The command whose arguments were wrong, for the hint: "gigaknn graph --help".
std::string help_hint(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return "; see gigaknn " + (chosen.empty() ? std::string() : chosen.front()->get_name() + " ") + "--help";
}

// Not what was meant, but an unset variable of a shell: what is left out says that nothing is given.
std::string refused_empty(const std::string& text) { return text.empty() ? "an empty value" : ""; }

// Into what the library of options, which takes 010 for eight and the largest for all that is larger, reads as decimal. Returns what is
// wrong with it.
template <class Whole>
std::string make_decimal(std::string& text) {
  if (text.empty()) return refused_empty(text);
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const bool digits = text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
  if (!digits) return join_text("'", text, "' is no whole number");
  text.erase(sign, std::min(text.find_first_not_of('0', sign), text.size() - 1) - sign);
  Whole value = 0;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const bool fits = std::from_chars(begin, text.data() + text.size(), value).ec != std::errc::result_out_of_range;
  if (fits) return "";
  return text.starts_with('-') ? join_text("'", text, "' is below ", std::numeric_limits<Whole>::min())
                               : join_text("'", text, "' is beyond ", std::numeric_limits<Whole>::max());
}

// The library of options takes -1 for the largest.
std::string refused_negative(const std::string& text) { return text.starts_with('-') ? join_text("'", text, "' is below 0") : ""; }

// The library of options takes 0x10 for sixteen.
std::string refused_hexadecimal(const std::string& text) {
  return text.find_first_of("xX") != std::string::npos ? join_text("'", text, "' is no decimal number") : "";
}

template <class T>
constexpr bool is_whole = std::is_integral_v<T> || std::is_same_v<T, std::optional<std::int64_t>>;
template <class T>
using WholeOf = std::conditional_t<std::is_integral_v<T>, T, std::int64_t>;

}  // namespace

Option Option::required() const { return Option(option_->required()); }
Option Option::show_default() const { return Option(option_->capture_default_str()); }
Option Option::group(const std::string& heading) const { return Option(option_->group(heading)); }
Option Option::expected(int least, int most) const { return Option(option_->expected(least, most)); }
bool Option::given() const { return option_->count() > 0; }

Option Option::tell(bool& is_given) const {
  return Option(option_->each([&is_given](const std::string&) { is_given = true; }));
}

Option Option::needs(Option other) const { return Option(option_->needs(other.option_)); }
Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }

Command Command::add_command(const std::string& name, const std::string& help) const { return Command(app_->add_subcommand(name, help)); }

template <class T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) const {
  CLI::Option* option = app_->add_option(name, value, help)->check(CLI::Validator(refused_empty, ""));
  if constexpr (is_whole<T>) option->transform(CLI::Validator(make_decimal<WholeOf<T>>, ""));
  if constexpr (std::is_unsigned_v<T>) option->check(CLI::Validator(refused_negative, ""));
  if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, std::optional<double>> || std::is_same_v<T, std::optional<float>>) {
    option->check(CLI::Validator(refused_hexadecimal, ""));
  }
  return Option(option);
}

Option Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Option Command::add_flag(const std::string& name, const std::string& help) const {
  return Option(app_->add_flag_callback(name, [] {}, help));
}

Option Command::option(const std::string& name) const { return Option(app_->get_option(name)); }
void Command::add_examples(const std::string& examples) const { app_->footer("Examples:\n" + examples); }
void Command::callback(const std::function<void()>& parsed) const { app_->callback(parsed); }

Parser::Parser(const std::string& help, const std::string& version, const std::string& footer)
    : app_(std::make_unique<CLI::App>(help, "gigaknn")) {
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
  app_->get_formatter()->column_width(28);
  app_->footer(footer);
}

Parser::~Parser() = default;

bool Parser::parse(int argc, char** argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {  // the library would take the next argument for the value
    const std::string_view argument = argv[i];
    require(!argument.starts_with("--") || argument.find('=') + 1 != argument.size(), Fault::invalid_argument, argument, ": an empty value");
  }
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      // "A subcommand is required" otherwise, also where one was given.
      const bool unknown = app_->get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
      require(!unknown, Fault::invalid_argument, "unknown command '", argv[1], "'", help_hint(*app_));
      fail(Fault::invalid_argument, error.what(), help_hint(*app_));
    }
    app_->exit(error);  // --help, --version
    return false;
  }
  return true;
}

// The types of values.
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, std::int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, float&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::filesystem::path&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<float>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::filesystem::path>&, const std::string&) const;

}  // namespace gigaknn::cli
