// For tests: a call must fail in one way and say so.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>

namespace gigaknn::test {

/// Expects an Error with this fault, of one line that shows each of `parts`.
inline void expect_error(Fault fault, const std::vector<std::string>& parts, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one that shows " << parts.front();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.fault(), fault) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' in: " << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

/// The least budget that a call names when it gets one byte.
inline std::size_t least_budget(const std::function<void(std::size_t budget)>& call) {
  try {
    call(1);
  } catch (const Error& error) {
    const std::string message = error.what();
    const std::size_t at = message.find("at least ");
    if (at != std::string::npos) return std::stoull(message.substr(at + 9));
  }
  ADD_FAILURE() << "a budget of one byte named none that would do";
  return 0;
}

}  // namespace gigaknn::test
