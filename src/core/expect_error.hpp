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

}  // namespace gigaknn::test
