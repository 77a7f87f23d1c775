#include "plan/sealed_text.hpp"

#include <charconv>

#include "core/require.hpp"
#include "io/checksum.hpp"
#include "io/mapped_file.hpp"
#include "io/output_file.hpp"

namespace gigaknn {

std::string exact_text(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string sealed(const TextLines& lines) {
  std::string text;
  for (const auto& [name, value] : lines) {
    require(value.find('\n') == std::string::npos, Fault::invalid_argument, name, " must be one line, got '", printable(value), "'");
    text += name + ' ' + value + '\n';
  }
  return text + "checksum " + hexadecimal(checksum_of(text.data(), text.size())) + '\n';
}

void write_sealed(const TextLines& lines, const std::filesystem::path& path) {
  const std::string text = sealed(lines);
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

std::map<std::string, std::string> read_sealed(const std::filesystem::path& path) {
  const FileBytes file = map_file(path);
  const std::string text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  const std::size_t seal = text.rfind("checksum ");
  require_at(seal != std::string::npos, file, file.size(), "the checksum is missing");
  const std::string expected = "checksum " + hexadecimal(checksum_of(text.data(), seal)) + '\n';
  require_at(text.substr(seal) == expected, file, seal, "the checksum is not that of the file");
  std::map<std::string, std::string> values;
  for (std::size_t begin = 0; begin < seal;) {
    const std::size_t end = text.find('\n', begin);
    const std::size_t space = text.find(' ', begin);
    require_at(end != std::string::npos && space < end, file, begin, "expected a name and a value");
    values[text.substr(begin, space - begin)] = text.substr(space + 1, end - space - 1);
    begin = end + 1;
  }
  return values;
}

}  // namespace gigaknn
