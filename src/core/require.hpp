// Checks at the edge of a layer: `require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k)`.
#pragma once

#include <sstream>
#include <string>

#include <gigaknn/error.hpp>

namespace gigaknn {

template <class... Parts>
std::string join_text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <class... Parts>
[[noreturn]] void fail(Fault fault, const Parts&... parts) {
  throw Error(fault, join_text(parts...));
}

template <class... Parts>
void require(bool condition, Fault fault, const Parts&... parts) {
  if (!condition) fail(fault, parts...);
}

}  // namespace gigaknn
