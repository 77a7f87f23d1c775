// Maps whose pages are read ahead, awaited, and given back.
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "io/file_wait.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

class MappedFileTest : public FileTest {
 protected:
  static constexpr std::size_t bytes = (std::size_t{5} << 20) + 123;  // several requests, and a part of a page

  MappedFileTest() : path_(file("a.bin", std::string(bytes, 'x'))), page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {}

  // Asks the system to forget the file's pages; whether it has any left.
  bool evicted(const FileBytes& map) const {
    release_mapped(map.bytes.data(), map.bytes.size());
    const int number = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    ::fsync(number);
    ::posix_fadvise(number, 0, 0, POSIX_FADV_DONTNEED);
    ::close(number);
    return pages_there(map) == 0;
  }
  std::size_t pages_there(const FileBytes& map) const {
    std::vector<unsigned char> there((map.bytes.size() + page_ - 1) / page_);
    EXPECT_EQ(::mincore(const_cast<std::byte*>(map.bytes.data()), map.bytes.size(), there.data()), 0);
    return static_cast<std::size_t>(std::count_if(there.begin(), there.end(), [](unsigned char page) { return page & 1; }));
  }
  std::size_t all_pages() const { return (bytes + page_ - 1) / page_; }
  void wait_for_pages(const FileBytes& map, std::size_t count) const {
    for (int tries = 0; pages_there(map) < count && tries < 1000; ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // Whether the system reads what it is advised to; qemu's does not. Of pages that are evicted.
  bool takes_advice(const FileBytes& map) const {
    ::madvise(const_cast<std::byte*>(map.bytes.data()), page_, MADV_WILLNEED);
    wait_for_pages(map, 1);
    return pages_there(map) > 0;
  }

  std::filesystem::path path_;
  std::size_t page_;
};

TEST_F(MappedFileTest, what_is_read_ahead_is_there_although_nobody_looked) {
  const FileBytes map = map_file(path_);
  if (!evicted(map)) GTEST_SKIP() << "this file system keeps its files in memory";
  if (!takes_advice(map)) GTEST_SKIP() << "this system does not read ahead";
  ASSERT_TRUE(evicted(map));
  ReadAhead reader;
  reader.begin({map.bytes.first(100), map.bytes.subspan(50, 5000), map.bytes.subspan(5050)});
  wait_for_pages(map, all_pages());
  EXPECT_EQ(pages_there(map), all_pages());
}

TEST_F(MappedFileTest, what_is_awaited_is_there_and_the_time_is_counted) {
  const FileBytes map = map_file(path_);
  (void)evicted(map);
  const double before = file_wait_seconds();
  await_mapped({map.bytes.subspan(0, 0), map.bytes.subspan(1, 1), map.bytes.subspan(page_ - 1)});
  EXPECT_EQ(pages_there(map), all_pages());
  EXPECT_GT(file_wait_seconds(), before);
}

TEST_F(MappedFileTest, stretches_that_are_less_than_a_page_apart_are_one) {
  const std::string memory(10 * page_, 'x');
  const auto part = [&](std::size_t begin, std::size_t bytes) { return std::as_bytes(std::span(memory)).subspan(begin, bytes); };
  Stretches stretches;
  add_stretch(stretches, part(10, 5));
  add_stretch(stretches, part(15, 5));
  add_stretch(stretches, part(19 + page_, 5));
  ASSERT_EQ(stretches.size(), 1u);
  EXPECT_EQ(stretches[0].size(), 14 + page_);
  add_stretch(stretches, part(24 + 2 * page_, 7));
  EXPECT_EQ(stretches.size(), 2u);
  add_stretch(stretches, part(0, 5));  // before the others: of another file
  EXPECT_EQ(stretches.size(), 3u);
}

TEST_F(MappedFileTest, what_is_mapped_is_told_from_memory) {
  const std::string memory(10, 'x');
  const void* first = nullptr;
  {
    const FileBytes map = map_file(path_), other = map_file(path_), copy = read_file(path_);
    first = map.bytes.data();
    EXPECT_TRUE(is_mapped(first));
    EXPECT_TRUE(is_mapped(other.bytes.data()));
    EXPECT_TRUE(is_mapped(&map.bytes.back()));
    EXPECT_FALSE(is_mapped(copy.bytes.data()));
    EXPECT_FALSE(is_mapped(memory.data()));
    EXPECT_FALSE(is_mapped(nullptr));
  }
  EXPECT_FALSE(is_mapped(first));
}

TEST_F(MappedFileTest, each_thread_counts_its_own_time) {
  const double before = file_wait_seconds();
  std::thread([] {
    EXPECT_EQ(file_wait_seconds(), 0);
    {
      const FileWait wait;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_GE(file_wait_seconds(), 0.005);
  }).join();
  EXPECT_EQ(file_wait_seconds(), before);
}

TEST_F(MappedFileTest, a_reader_that_ends_at_once_leaves_nothing_behind) {
  for (int i = 0; i < 50; ++i) {
    const FileBytes map = map_file(path_);
    ReadAhead reader;
    reader.begin({map.bytes});
    reader.begin({});
    reader.begin({map.bytes.subspan(page_)});
  }
}

}  // namespace
}  // namespace gigaknn
