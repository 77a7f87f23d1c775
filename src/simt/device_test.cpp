// Streams and memory of a device, emulated or real (bench/gpu).
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "core/expect_error.hpp"
#include "simt/device.hpp"

namespace gigaknn {
namespace {

using simt::DeviceBuffer;

TEST(Device, work_of_a_stream_is_done_after_a_wait) {
  simt::Stream* first = simt::create_stream();
  simt::Stream* second = simt::create_stream();
  simt::Event* event = simt::create_event();
  int on_host = 0;
  const int one = 1;
  {
    const DeviceBuffer<int> value(1, first);
    simt::copy(value.get(), &one, sizeof one, first);
    simt::record(event, first);
    simt::wait(second, event);
    simt::copy(&on_host, value.get(), sizeof one, second);
    const char* late = std::getenv("GIGAKNN_EMULATED_LATE");
    if (late && *late == '1') {
      EXPECT_EQ(on_host, 0);
    }
    simt::synchronize(second);
    EXPECT_EQ(on_host, 1);
  }
  simt::destroy_stream(first);
  simt::destroy_stream(second);
  simt::destroy_event(event);
}

TEST(Device, memory_is_read_in_pieces) {
  constexpr std::size_t most = 2 * simt::piece_bytes;
  std::vector<unsigned char> values(most + 12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(i * 7 % 251);
  simt::OwnStream stream(0);
  const DeviceBuffer<unsigned char> on_device(std::span<const unsigned char>(values), stream);
  simt::synchronize(stream);
  // None, one piece and a part, several, and units that no piece has room for.
  for (const std::size_t unit : {std::size_t{1}, std::size_t{12}, simt::piece_bytes / 3, simt::piece_bytes, simt::piece_bytes + 4}) {
    for (const std::size_t bytes :
         {std::size_t{0}, unit, simt::most_unpinned / unit * unit, simt::piece_bytes / unit * unit, most / unit * unit}) {
      std::size_t seen = 0;
      simt::read_in_pieces(on_device.get(), bytes, unit, stream, [&](std::size_t begin, const void* memory, std::size_t some) {
        EXPECT_EQ(begin, seen);
        EXPECT_EQ(some % unit, 0u);
        EXPECT_TRUE(some <= simt::piece_bytes || some == unit || bytes <= simt::most_unpinned) << some;
        EXPECT_EQ(std::memcmp(memory, values.data() + begin, some), 0) << begin;
        seen += some;
      });
      EXPECT_EQ(seen, bytes) << unit;
    }
  }
}
TEST(Device, a_reader_that_fails_leaves_nothing_under_way) {
  const simt::MemoryUse before = simt::memory_use();
  {
    simt::OwnStream stream(0);
    const std::size_t bytes = 3 * simt::piece_bytes;
    const DeviceBuffer<unsigned char> on_device(bytes, stream);
    simt::fill(on_device.get(), 5, bytes, stream);
    int taken = 0;
    EXPECT_THROW(simt::read_in_pieces(on_device.get(), bytes, 1, stream,
                                      [&](std::size_t, const void* memory, std::size_t) {
                                        EXPECT_EQ(*static_cast<const unsigned char*>(memory), 5);
                                        if (++taken == 2) throw std::bad_alloc();
                                      }),
                 std::bad_alloc);
    EXPECT_EQ(taken, 2);
  }
  EXPECT_EQ(simt::memory_use().bytes, before.bytes);
}

TEST(Device, memory_is_counted_and_a_budget_holds) {
  simt::synchronize(nullptr);
  const simt::MemoryUse before = simt::memory_use();
  {
    const DeviceBuffer<int> buffer(1000);
    EXPECT_EQ(simt::memory_use().bytes, before.bytes + 4000);
    simt::set_memory_budget(before.bytes + 5000);
    test::expect_error(Fault::out_of_memory, {"budget", "2000"}, [] { DeviceBuffer<int>(500); });
    simt::set_memory_budget(0);
  }
  simt::synchronize(nullptr);
  EXPECT_EQ(simt::memory_use().bytes, before.bytes);
  EXPECT_GE(simt::memory_use().peak_bytes, before.bytes + 4000);
}

}  // namespace
}  // namespace gigaknn
