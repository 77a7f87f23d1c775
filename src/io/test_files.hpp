// For the tests of this folder and for fuzz/: files in a folder of their own, and bytes without a
// file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <gigaknn/error.hpp>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// A test with an empty folder, removed afterwards.
class FileTest : public testing::Test {
 protected:
  FileTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              join_text("gigaknn.", test->test_suite_name(), ".", test->name(), ".", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path file(const std::string& name) const { return folder_ / name; }
  std::filesystem::path file(const std::string& name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }
  std::size_t files_in_folder() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_),
                                                  std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path folder_;
};

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// `action` throws Error of `fault` whose message is one line and contains each of `parts`.
template <class... Parts>
void expect_error(Fault fault, const std::function<void()>& action, const Parts&... parts) {
  try {
    action();
    ADD_FAILURE() << "no error, expected:" << join_text(' ', parts...);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.fault(), fault) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& part : {std::string(parts)...}) {
      EXPECT_NE(message.find(part), std::string::npos)
          << "expected '" << part << "' in: " << message;
    }
  }
}

}  // namespace gigaknn
