// For the tests of this folder: an index file that is cut at every byte, and one with each byte changed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gigaknn/error.hpp>
#include <gigaknn/index.hpp>

#include "io/container.hpp"
#include "io/mapped_file.hpp"

namespace gigaknn::test {

/// Of what is cut nothing is opened. What is changed is refused by `check_index`, and when it is read; mapped, it is refused when it is
/// opened or by `use`, which is handed it with the number of the byte and looks into all lists. But for full vectors behind them, a search
/// of which ends well all the same.
inline void expect_damage_is_refused(const std::string& whole, const std::filesystem::path& folder,
                                     const std::function<void(Index&, std::size_t)>& use) {
  const auto path = folder / "damaged.gknn";
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  write(whole);
  const Container sound = Container::open(read_file(path));
  // Whether the byte is of a section that searches look at whole.
  const auto looked_at = [&](std::size_t byte) {
    const bool behind = sound.schema() != "flat" && sound.schema() != "ivf_flat";
    return std::any_of(sound.sections().begin(), sound.sections().end(), [&](const Section& section) {
      return byte >= section.offset && byte < section.offset + section.bytes && !(behind && section.name == "rows");
    });
  };
  const auto is_refused = [&](const std::function<void()>& job) {
    try {
      job();
      return false;
    } catch (const Error& error) {
      EXPECT_TRUE(error.fault() == Fault::corrupt_file || error.fault() == Fault::unsupported) << error.what();
      return true;
    }
  };
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
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 2 == 0 ? 1 : 128));
    write(bytes);
    EXPECT_TRUE(is_refused([&] { check_index(path, {.threads = 1}); })) << i;
    EXPECT_TRUE(is_refused([&] { open_index(path, {}, {.threads = 1}); })) << i;
    const bool refused = is_refused([&] { use(*open_index(path, {.map = true}), i); });
    EXPECT_TRUE(refused || !looked_at(i)) << "mapped, byte " << i;
  }
}

}  // namespace gigaknn::test
