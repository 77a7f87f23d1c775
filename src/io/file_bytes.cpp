#include "io/file_bytes.hpp"

#include <algorithm>

namespace gigaknn {

std::string decimal(WideSize size) {
  std::string digits;
  do {
    digits.push_back(static_cast<char>('0' + static_cast<int>(size % 10)));
    size /= 10;
  } while (size != 0);
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return clean;
}

}  // namespace gigaknn
