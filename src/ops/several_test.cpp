// Several emulated GPUs against the float64 reference.
#include "ops/conformance.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <gigaknn/device.hpp>

#include "core/expect_error.hpp"

namespace gigaknn {
namespace {

using namespace test;

Case case_of(Metric metric, DType dtype, std::int64_t n, std::int64_t q) {
  Case c{
      .metric = metric, .dtype = dtype, .kind = Kind::clustered, .n = n, .q = q, .d = 12, .k = 6};
  c.hints = {.k = c.k, .queries = 1000, .batch = 1000, .self = false};
  return c;
}

TEST(Several, devices_answer_as_one) {
  for (const auto& [metric, dtype] :
       {Subject{Metric::l2, DType::f32}, Subject{Metric::inner_product, DType::u8},
        Subject{Metric::hamming, DType::u8}, Subject{Metric::chi2, DType::f32}}) {
    for (const auto& [count, shards] : {std::pair{2, 1}, {4, 2}, {3, 3}}) {
      const Devices several = {&ops_of("emulated:" + std::to_string(count), shards)};
      for (const std::int64_t n : {7, 60}) {
        Case c = case_of(metric, dtype, n, 5);
        c.threads = 2;
        check_nearest_rows(c, several);
        check_nearest_set(c, several);
        check_nearest_one(c, several);
        check_nearest_among(c, several);
        check_first_self(c, several);
        check_nearest_in_cells(c, several);
        check_join_cells(c, several);
        if (dtype == DType::f32 && metric == Metric::l2) {
          check_nearest_in_codes(c, several);
          check_encode_products(c, several);
          check_products(c, several);
        }
        check_within_radius(c, several);
        check_pair_distances(c, several);
        c.q = 1;
        check_self_nearest(c, several);
      }
      // Fewer queries than groups.
      const Case one = case_of(metric, dtype, 60, 1);
      check_nearest_rows(one, several);
      check_nearest_set(one, several);
      check_nearest_among(one, several);
      if (dtype == DType::f32 && metric == Metric::l2) check_products(one, several);
    }
  }
}

// Each device has some of the rows, or none.
TEST(Several, select_from_rows_of_their_own) {
  for (const auto& [count, shards] : {std::pair{2, 1}, {4, 2}, {8, 1}}) {
    const Devices several = {&ops_of("emulated:" + std::to_string(count), shards)};
    for (const std::int64_t rows : {1, 5, 19}) {
      for (const std::int64_t k : {1, 40, 300}) {
        Case c;
        c.n = 200;
        c.q = rows;
        c.k = k;
        c.threads = 2;
        c.strided = rows == 5;
        check_select_k(c, several);
      }
    }
  }
}

// Labels of one row, of some and of all, so that runs and labels are cut in every way.
TEST(Several, sums_and_assignments_are_those_of_one_device) {
  for (const DType dtype : {DType::f32, DType::u8}) {
    for (const auto& [count, shards] : {std::pair{2, 1}, {4, 2}, {8, 1}}) {
      const Devices several = {&ops_of("emulated:" + std::to_string(count), shards)};
      for (const std::int64_t n : {1, 600}) {
        for (const std::int64_t labels : {1, 3, 40}) {
          Case c = case_of(Metric::l2, dtype, n, 5);
          c.kind = Kind::gaussian;
          c.k = labels;
          c.threads = 3;
          check_sum_by_label(c, several);
          if (labels != 40) continue;
          c.n = std::min<std::int64_t>(n, 90);  // each row is a query, six times or twelve
          check_assignment(c, several);
        }
      }
    }
  }
}

// In cells of hundreds of rows, of both kinds of codes.
TEST(Several, shards_divide_the_rows_of_each_cell) {
  for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product}) {
    for (const std::uint64_t seed : {1, 2}) {
      Case c = case_of(metric, DType::f32, 400, 5);
      c.seed = seed;
      for (const auto& [count, shards] : {std::pair{2, 1}, {4, 2}, {3, 3}}) {
        check_nearest_in_codes(c, {&ops_of("emulated:" + std::to_string(count), shards)});
      }
    }
  }
}
TEST(Several, refuses_what_cannot_be_shared) {
  test::expect_error(Fault::invalid_argument, {"shards must divide the 4 devices, got 3"},
                     [] { ops_of("emulated:4", 3); });
  test::expect_error(Fault::invalid_argument, {"shards must be >= 1, got 0"},
                     [] { ops_of("emulated:4", 0); });
  test::expect_error(Fault::invalid_argument, {"got 2 on cpu"}, [] { ops_of("cpu", 2); });
  // Lists of numbers are for GPUs: emulated ones are alike, and told by how many they are.
  for (const char* name : {"emulated:0", "emulated:9", "emulated:x", "emulated:", "emulated:-1", "emulated:2,", "emulated,emulated",
                           "emulated:0,emulated:1", "cuda:0", "cuda:0,cuda:1", ""}) {
    test::expect_error(Fault::device, {name, "emulated:2..8"}, [=] { ops_of(name); });
  }
}
TEST(Several, shards_may_have_no_rows) {
  for (const std::int64_t n : {1, 2, 3}) {
    const Devices several = {&ops_of("emulated:8", 4)};
    check_nearest_rows(case_of(Metric::l2, DType::f32, n, 5), several);
    check_within_radius(case_of(Metric::l1, DType::i8, n, 5), several);
    check_nearest_in_codes(case_of(Metric::inner_product, DType::f32, n, 5), several);
    check_encode_products(case_of(Metric::l2, DType::f32, n, 5), several);
  }
}

TEST(ShareOfDevice, deals_gpus_to_processes) {
  const auto shares = [](const std::string& device, int count) {
    std::vector<std::string> names;
    for (int process = 0; process < count; ++process) names.push_back(share_of_device(device, process, count));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(shares("emulated:4", 3), (Names{"emulated:2", "emulated", "emulated"}));
  EXPECT_EQ(shares("emulated:4", 2), (Names{"emulated:2", "emulated:2"}));
  EXPECT_EQ(shares("emulated:2", 5), (Names(5, "emulated")));
  EXPECT_EQ(shares("emulated:4", 1), (Names{"emulated:4"}));
  EXPECT_EQ(shares("emulated", 2), (Names{"emulated", "emulated"}));
  EXPECT_EQ(shares("cpu", 2), (Names{"cpu", "cpu"}));
  EXPECT_EQ(shares("no device", 2), (Names{"no device", "no device"}));  // who opens it says so
  test::expect_error(Fault::invalid_argument, {"process must be in [0, 2), got 2"}, [] { share_of_device("cpu", 2, 2); });
}

}  // namespace
}  // namespace gigaknn
