// Blocks of a mapped file, compared when they are first looked at.
#include "io/file_check.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/expect_error.hpp"
#include "io/mapped_file.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

using test::expect_error;

class FileCheckTest : public FileTest {
 protected:
  // Two sections, of which the second has 3 blocks, with these bytes of it changed.
  Container with_damage(std::initializer_list<std::uint64_t> places) {
    const std::vector<std::uint8_t> first(100, 1), second(2 * container_block_bytes + 1, 2);
    ContainerWriter writer(file("x"), "x", 1);
    writer.add_section("first", Element::u8, 1, first.size(), first.data());
    writer.add_section("second", Element::u8, 1, second.size(), second.data());
    writer.finish();
    std::string bytes = bytes_of(file("x"));
    const std::uint64_t offset = Container::open(file("x")).section("second", Element::u8).offset;
    for (const std::uint64_t place : places) bytes[offset + place] ^= 4;
    return Container::open(map_file(file("damaged", bytes)));
  }
  static std::span<const std::byte> bytes_of_second(const Container& file, std::uint64_t begin, std::uint64_t count) {
    return file.bytes_of(file.section("second", Element::u8)).subspan(begin, count);
  }
};

TEST_F(FileCheckTest, only_blocks_that_hold_the_bytes_are_looked_at) {
  const Container file = with_damage({2 * container_block_bytes});
  const FileCheck check(file);
  check.require_bytes({});
  check.require_bytes(file.bytes_of(file.section("first", Element::u8)));
  check.require_bytes(bytes_of_second(file, 0, 2 * container_block_bytes), {});
  check.require_bytes(bytes_of_second(file, container_block_bytes - 1, 2));
  expect_error(Fault::corrupt_file, {"section 'second'", "checksum is wrong"},
               [&] { check.require_bytes(bytes_of_second(file, 2 * container_block_bytes - 1, 2)); });
  expect_error(Fault::corrupt_file, {"section 'second'"},
               [&] { check.require_bytes(bytes_of_second(file, 2 * container_block_bytes, 1)); });
  check.require_bytes(bytes_of_second(file, 5, 9));  // what is good remains so
}

TEST_F(FileCheckTest, the_first_of_several_is_named_whatever_the_threads) {
  const Container file = with_damage({5, 2 * container_block_bytes});
  const std::uint64_t offset = file.section("second", Element::u8).offset;
  for (int round = 0; round < 20; ++round) {
    const FileCheck check(file);
    expect_error(Fault::corrupt_file, {join_text("byte ", offset, ":")},
                 [&] { check.require_bytes(bytes_of_second(file, 0, 2 * container_block_bytes + 1), {.threads = 2}); });
  }
}

TEST_F(FileCheckTest, threads_share_one) {
  const Container file = with_damage({container_block_bytes + 7});
  const FileCheck check(file);
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t block = 0; block < 3; ++block) {
        const std::uint64_t which = (block + static_cast<std::uint64_t>(thread)) % 3;
        try {
          check.require_bytes(bytes_of_second(file, which * container_block_bytes, 1));
        } catch (const Error&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
}

}  // namespace
}  // namespace gigaknn
