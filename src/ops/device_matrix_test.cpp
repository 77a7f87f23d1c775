// Rows in the memory of a GPU, as a caller of the library has them there.
#include <gigaknn/device.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/expect_error.hpp"
#include "ops/blocks.hpp"
#include "ops/gpu/device_rows.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"
#include "ops/usable_rows.hpp"
#include "simt/device.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

const std::string device = simt::device_kind() == "cuda" ? "cuda:0" : "emulated";

// The rows on the device, dense or with `gap` columns between them, which are cut off again.
class OnDevice {
 public:
  explicit OnDevice(MatrixRef rows, std::int64_t gap = 0) : memory_(device, rows.rows, rows.cols + gap, rows.dtype) {
    Matrix wide(rows.rows, rows.cols + gap, rows.dtype);
    std::fill_n(static_cast<std::byte*>(wide.data()), static_cast<std::size_t>(wide.rows() * wide.ref().stride_bytes), std::byte{0x7F});
    const std::size_t row_bytes = static_cast<std::size_t>(rows.cols) * size_of(rows.dtype);
    for (std::int64_t i = 0; i < rows.rows; ++i) std::copy_n(rows.row_bytes(i), row_bytes, wide.row<std::byte>(i));
    memory_.upload(wide.data());
    ref_ = memory_.ref();
    ref_.cols = rows.cols;
  }
  operator MatrixRef() const { return ref_; }

 private:
  DeviceMatrix memory_;
  MatrixRef ref_;
};

TEST(DeviceMatrix, comes_back_as_it_went) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  DeviceMatrix there(device, 3, 2, DType::f32);
  EXPECT_EQ(there.device(), device);
  EXPECT_EQ(there.number(), 0);
  EXPECT_EQ(there.ref().space, MemorySpace::device);
  there.upload(values.data());
  std::vector<float> back(6);
  there.download(back.data());
  EXPECT_EQ(back, values);
  const DeviceMatrix moved = std::move(there);
  const Matrix row = copy_to_host(moved.ref().slice(1, 2));
  EXPECT_EQ(row.row<float>(0)[0], 3);
  EXPECT_EQ(row.row<float>(0)[1], 4);
  EXPECT_EQ(copy_to_host(DeviceMatrix(device, 0, 5, DType::u8)).rows(), 0);
  wait_for_stream(0, 0);
}

TEST(DeviceMatrix, refuses_what_is_no_gpu) {
  for (const char* name : {"cpu", "", "emulated:2", "cuda:0,cuda:1", "cuda:99"}) {
    expect_error(Fault::device, {"is not one GPU: this build has cpu"}, [&] { DeviceMatrix(name, 1, 1, DType::f32); });
  }
  expect_error(Fault::invalid_argument, {"-1 x 1"}, [&] { DeviceMatrix(device, -1, 1, DType::f32); });
  const std::vector<float> host(4);
  MatrixRef claimed(host.data(), 2, 2, DType::f32);
  claimed.space = MemorySpace::device;
  expect_error(Fault::device, {"are not"}, [&] { copy_to_host(claimed); });
  expect_error(Fault::device, {"are not"}, [&] { ops_of(device).unusable_rows(claimed); });
  const DeviceMatrix there(device, 2, 2, DType::f32);
  expect_error(Fault::unsupported, {"not on cpu"}, [&] { ops_of("cpu").unusable_rows(there); });
  if (simt::device_kind() == "emulated") expect_error(Fault::invalid_argument, {"no stream 12345"}, [&] { wait_for_stream(0, 12345); });
}

TEST(DeviceMatrix, gives_its_memory_back) {
  const std::size_t before = simt::memory_use().bytes;
  {
    const DeviceMatrix there(device, 100, 8, DType::f32);
    EXPECT_EQ(simt::memory_use().bytes, before + 3200);
  }
  EXPECT_EQ(simt::memory_use().bytes, before);
}

TEST(DeviceMatrix, rows_of_whole_pieces_are_not_copied) {
  const auto taken_for = [](std::int64_t cols, DType dtype, std::int64_t gap, std::int64_t first) {
    StridedRows rows(50, cols, dtype, 0), queries(1, cols, dtype, 0);
    test::VectorMaker(Kind::clustered, 50, cols, dtype, Metric::l2, 3).fill(rows, queries);
    const OnDevice there(rows, gap);
    const std::size_t before = simt::memory_use().bytes;
    const simt::OwnStream stream(0);
    const gpu::DeviceRows taken(MatrixRef(there).slice(first, 50), stream);
    const std::size_t facts = static_cast<std::size_t>(50 - first) * 9;
    EXPECT_EQ(taken.bytes(), simt::memory_use().bytes - before);
    return simt::memory_use().bytes - before - facts;
  };
  EXPECT_EQ(taken_for(8, DType::f32, 0, 0), 0u);
  EXPECT_EQ(taken_for(8, DType::f32, 4, 3), 0u);
  EXPECT_EQ(taken_for(32, DType::u8, 0, 7), 0u);
  EXPECT_EQ(taken_for(8, DType::f16, 8, 0), 0u);
  // Rows that do not begin or do not end with a piece of 16 bytes.
  EXPECT_EQ(taken_for(7, DType::f32, 1, 0), 50u * 32);
  EXPECT_EQ(taken_for(8, DType::f32, 1, 0), 50u * 32);
  EXPECT_EQ(taken_for(17, DType::u8, 0, 1), 49u * 32);
}

TEST(DeviceMatrix, is_searched_as_the_same_rows_of_the_host) {
  for (const Metric metric : all_metrics()) {
    for (const DType dtype : vector_dtypes) {
      if (on_bits(metric) && dtype != DType::u8) continue;
      for (const auto& [cols, gap] : {std::pair(16, 0), {16, 16}, {13, 0}, {13, 5}}) {
        StridedRows base(70, cols, dtype, 0), queries(9, cols, dtype, 0);
        test::VectorMaker(Kind::clustered, 70, cols, dtype, metric, 5).fill(base, queries);
        const Neighbors want = reference::nearest_rows(queries, base, metric, 6);
        const OnDevice there(base, gap), asked(queries, gap);
        for (const std::string& name : {device, device == "emulated" ? std::string("emulated:2") : device}) {
          const Ops& ops = ops_of(name);
          require_usable_rows(ops, there, metric, false, "the base", {});
          for (const auto& [b, q] : {std::pair<MatrixRef, MatrixRef>(there, asked), {there, queries}, {base, asked}}) {
            const BlockedBase rows(ops, b, metric, {.k = 6, .queries = 9, .batch = 9}, 0, {});
            Neighbors found(9, 6);
            rows.nearest(q, 6, NeighborsOut(found), {});
            EXPECT_EQ(found.ids, want.ids) << name_of(metric) << ' ' << name_of(dtype) << ' ' << cols;
            EXPECT_EQ(found.distances, want.distances);
          }
        }
      }
    }
  }
}

TEST(DeviceMatrix, finds_its_own_neighbours_also_in_blocks) {
  StridedRows base(3000, 16, DType::u8, 0), queries(1, 16, DType::u8, 0);
  test::VectorMaker(Kind::clustered, 3000, 16, DType::u8, Metric::l2, 5).fill(base, queries);
  const OnDevice there(base);
  const PrepareHints hints{.k = 4, .queries = 3000, .batch = 3000, .self = true};
  const auto self_nearest = [&](MatrixRef rows, std::size_t device_memory) {
    RunOptions run;
    run.device_memory_bytes = device_memory;
    const BlockedBase blocks(ops_of(device), rows, Metric::l2, hints, 0, run);
    EXPECT_EQ(blocks.whole() == nullptr, device_memory > 0);
    Neighbors found(3000, 4);
    blocks.self_nearest(4, NeighborsOut(found), run);
    return found;
  };
  const Neighbors want = self_nearest(base, 0);
  const std::size_t whole = ops_of(device).device_bytes_needed(3000, 16, DType::u8, Metric::l2, hints);
  for (const std::size_t memory : {std::size_t{0}, whole - 1}) {
    const Neighbors found = self_nearest(there, memory);
    EXPECT_EQ(found.ids, want.ids);
    EXPECT_EQ(found.distances, want.distances);
  }
}

TEST(DeviceMatrix, values_that_a_metric_cannot_use_are_told_as_on_the_host) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float value : {std::nanf(""), inf, -inf, -1.0f, -0.0f}) {
    for (const std::int64_t row : {0, 41, 99}) {
      StridedRows base(100, 37, DType::f32, 0), queries(1, 37, DType::f32, 0);
      test::VectorMaker(Kind::clustered, 100, 37, DType::f32, Metric::chi2, 5).fill(base, queries);
      for (const std::int64_t one : {row, (row + 100) / 2, std::int64_t{99}}) base.set(one, 36, value);  // the first is named
      const OnDevice there(base, 3);
      for (const Metric metric : {Metric::l2, Metric::chi2}) {
        for (const bool allow : {false, true}) {
          const auto told = [&](MatrixRef rows) -> std::string {
            try {
              require_usable_rows(ops_of(device), rows, metric, allow, "the base", {});
            } catch (const Error& error) {
              EXPECT_EQ(error.fault(), Fault::invalid_data);
              return error.what();
            }
            return {};
          };
          EXPECT_EQ(told(there), told(base)) << value << ' ' << row << ' ' << name_of(metric) << allow;
          EXPECT_EQ(told(there).empty(), value == 0 || (metric == Metric::l2 && (allow || std::isfinite(value))) ||
                                             (allow && !(value < 0)));
        }
      }
    }
  }
  expect_error(Fault::invalid_argument, {"0 columns"},
               [&] { require_usable_rows(ops_of(device), DeviceMatrix(device, 3, 0, DType::f32), Metric::l2, false, "rows", {}); });
}

}  // namespace
}  // namespace gigaknn
