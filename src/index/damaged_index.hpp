// For the tests of this folder: an index file that is cut at every byte, and one with each byte changed.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gigaknn/error.hpp>
#include <gigaknn/index.hpp>

namespace gigaknn::test {

/// Of what is cut nothing is opened. Of what is changed `check_index` says so; opened all the same, it is handed to `use` with the number of the byte,
/// which ends well or says what is wrong. How many were.
inline std::int64_t expect_damage_is_noticed(const std::string& whole, const std::filesystem::path& folder, const std::function<void(Index&, std::size_t)>& use) {
  const auto path = folder / "damaged.gknn";
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    try {
      open_index(path);
      ADD_FAILURE() << "cut at byte " << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::corrupt_file) << error.what();
      EXPECT_NE(std::string(error.what()).find("damaged.gknn: byte "), std::string::npos) << error.what();
    }
  }
  std::int64_t opened = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 1 : 128));
    write(bytes);
    EXPECT_THROW(check_index(path, {.threads = 1}), Error) << i;
    try {
      const auto index = open_index(path, {.map = i % 3 == 0});
      ++opened;
      use(*index, i);
    } catch (const Error& error) {
      EXPECT_TRUE(error.fault() == Fault::corrupt_file || error.fault() == Fault::unsupported || error.fault() == Fault::invalid_data) << error.what();
    }
  }
  return opened;
}

}  // namespace gigaknn::test
