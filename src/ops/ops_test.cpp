// What the ops promise beside their answers: devices, errors, cancelling, progress; and the reference itself.
#include "ops/conformance.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gigaknn/error.hpp>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "core/require.hpp"

namespace gigaknn {
namespace {

using namespace test;
using enum Metric;
using enum DType;
using enum Kind;

constexpr float infinity = std::numeric_limits<float>::infinity();

float reference_distance(Metric metric, DType dtype, std::vector<float> x, std::vector<float> y) {
  StridedRows rows(2, std::ssize(x), dtype, 0);
  for (std::int64_t col = 0; col < std::ssize(x); ++col) {
    rows.set(0, col, x[col]);
    rows.set(1, col, y[col]);
  }
  const reference::Rows wide(rows, metric);
  return reference::distance(wide, 0, wide, 1, metric);
}

// Whose cosine rounding would make more than 1.
TEST(Reference, parallel_rows_are_nothing_apart) {
  StridedRows rows(3, 3, f32, 0);
  const float x[] = {1, 8, 2}, tenth[] = {0.1f, 0.8f, 0.2f}, other[] = {5, 0, 1};
  for (std::int64_t j = 0; j < 3; ++j) {
    rows.set(0, j, x[j]);
    rows.set(1, j, tenth[j]);
    rows.set(2, j, other[j]);
  }
  const reference::Rows wide(rows, Metric::cosine);
  EXPECT_EQ(reference::distance(wide, 0, wide, 1, Metric::cosine), 0.0f);
  for (const Ops* ops : instruction_sets()) {
    const RowId candidates[] = {RowId{1}, RowId{2}};
    std::vector<float> distances(2);
    ops->pair_distances(rows.ref().slice(0, 1), rows, Metric::cosine, candidates, 2, distances.data(), {});
    EXPECT_EQ(distances[0], 0.0f) << ops->isa();
    EXPECT_EQ(distances[1], reference::distance(wide, 0, wide, 2, Metric::cosine)) << ops->isa();
  }
}

TEST(Reference, distances_worked_out_by_hand) {
  const std::vector<float> x = {4, 0, 9};
  const std::vector<float> y = {1, 0, 16};
  for (const DType dtype : vector_dtypes) {
    EXPECT_EQ(reference_distance(Metric::l2, dtype, x, y), 58.0f);
    EXPECT_EQ(reference_distance(Metric::euclidean, dtype, x, y),
              static_cast<float>(std::sqrt(58.0)));
    EXPECT_EQ(reference_distance(Metric::inner_product, dtype, x, y), 148.0f);
    EXPECT_EQ(reference_distance(Metric::cosine, dtype, x, y),
              static_cast<float>(1.0 - 148.0 / std::sqrt(97.0 * 257.0)));
    EXPECT_EQ(reference_distance(Metric::l1, dtype, x, y), 10.0f);
    EXPECT_EQ(reference_distance(Metric::linf, dtype, x, y), 7.0f);
    EXPECT_EQ(reference_distance(Metric::chi2, dtype, x, y),
              static_cast<float>(9.0 / 5 + 49.0 / 25));
    EXPECT_EQ(reference_distance(Metric::hellinger, dtype, x, y),
              static_cast<float>(std::sqrt(2.0) / std::sqrt(2.0)));
  }
  EXPECT_EQ(reference_distance(Metric::hamming, DType::u8, {255, 1}, {0, 3}), 9.0f);
  EXPECT_EQ(reference_distance(Metric::jaccard, DType::u8, {7, 1}, {3, 0}), 0.5f);
  EXPECT_EQ(reference_distance(Metric::jaccard, DType::u8, {0, 0}, {0, 0}), 0.0f);
  EXPECT_EQ(reference_distance(Metric::cosine, DType::f32, {0, 0}, {1, 0}), infinity);
  EXPECT_EQ(reference_distance(Metric::inner_product, DType::f32, {infinity, 0}, {1, 0}),
            -infinity);
}

TEST(Reference, sums_thirty_two_terms_apart_first) {
  // 2^53 swallows a 1 that is added to it alone; ones that meet each other first survive.
  const auto sum_with_ones_at = [](std::int64_t first, std::int64_t second) {
    return reference::ordered_sum(100, [=](std::int64_t i) {
      return i == 0 ? 0x1p53 : i == first || i == second ? 1.0 : 0.0;
    });
  };
  EXPECT_EQ(sum_with_ones_at(16, 48), 0x1p53 + 2);  // one accumulator
  EXPECT_EQ(sum_with_ones_at(8, 24), 0x1p53 + 2);  // they meet at the first halving
  EXPECT_EQ(sum_with_ones_at(99, 35), 0x1p53 + 2);  // the tail belongs to accumulator 3 too
  EXPECT_EQ(sum_with_ones_at(32, 64), 0x1p53);  // each falls to 2^53 alone
  EXPECT_EQ(sum_with_ones_at(8, 16), 0x1p53);
}

class InstructionSet : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, InstructionSet, testing::Values("avx512vnni", "avx2", "generic"),
                         [](const auto& info) { return info.param; });

// Whether the processor has all that Highway asks of it (its targets AVX2 and AVX3_DL). By the names of Linux: what compilers can ask
// the processor for differs.
bool processor_has(const std::string& isa) {
  if (isa == "generic") return true;
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("flags")) continue;
  std::istringstream words(line);
  const std::set<std::string> flags{std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
  std::vector<std::string> needed = {"ssse3", "sse4_1", "sse4_2", "pclmulqdq", "aes", "avx", "avx2", "abm", "bmi1", "bmi2", "fma", "f16c"};
  if (isa == "avx512vnni") {
    for (const char* flag : {"avx512f", "avx512vl", "avx512dq", "avx512bw", "avx512cd", "avx512_vnni", "avx512vbmi", "avx512_vbmi2",
                             "avx512_bitalg", "avx512_vpopcntdq", "vaes", "vpclmulqdq", "gfni"}) {
      needed.push_back(flag);
    }
  }
  return std::all_of(needed.begin(), needed.end(), [&](const std::string& flag) { return flags.contains(flag); });
#else
  return false;
#endif
}

TEST_P(InstructionSet, opens_and_answers_like_the_reference) {
  const Ops* ops = nullptr;
  try {
    ops = &ops_of("cpu:" + GetParam());
  } catch (const Error& error) {
    ASSERT_EQ(error.fault(), Fault::device) << error.what();
    ASSERT_FALSE(processor_has(GetParam())) << "the processor has it: " << error.what();
    GTEST_SKIP() << GetParam() << " is not on this machine: " << error.what();
  }
  EXPECT_EQ(ops->isa(), GetParam());
  EXPECT_EQ(ops->name(), "cpu");
  Case c{.metric = l2, .dtype = f32, .kind = clustered, .n = 300, .q = 17, .d = 20, .k = 5};
  const Problem problem(c);
  EXPECT_TRUE(same_lists(search(*ops, problem, c),
                         reference::nearest_rows(problem.queries, problem.base, l2, 5)));
}

TEST(Device, cpu_is_the_best_instruction_set_that_there_is) {
  if (std::getenv("GIGAKNN_ISA")) GTEST_SKIP() << "GIGAKNN_ISA names another";
  const std::vector<std::string> there = cpu_devices();
  for (const char* isa : {"avx512vnni", "avx2", "generic"}) {
    if (std::find(there.begin(), there.end(), std::string("cpu:") + isa) == there.end()) continue;
    EXPECT_EQ(ops_of("cpu").isa(), isa);
    return;
  }
  ADD_FAILURE() << "not even the generic one is there";
}

TEST(Device, cpu_answers_like_the_reference) {
  Case c{.metric = l2, .dtype = f32, .kind = low_rank, .n = 900, .q = 40, .d = 70, .k = 10};
  const Problem problem(c);
  EXPECT_EQ(ops_of("cpu").name(), "cpu");
  EXPECT_TRUE(same_lists(search(ops_of("cpu"), problem, c),
                         reference::nearest_rows(problem.queries, problem.base, l2, 10)));
}

TEST(Prepared, says_what_it_holds) {
  Case c{.metric = cosine, .dtype = f16, .n = 300, .d = 20};
  const Problem problem(c);
  for (const Ops* ops : instruction_sets()) {
    const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
    EXPECT_EQ(prepared->rows(), 300);
    EXPECT_EQ(prepared->cols(), 20);
    EXPECT_EQ(prepared->dtype(), f16);
    EXPECT_EQ(prepared->metric(), cosine);
    EXPECT_EQ(prepared->space(), MemorySpace::host);
    EXPECT_FALSE(prepared->description().empty());
    EXPECT_EQ(prepared->description().find('\n'), std::string::npos);
    EXPECT_LE(prepared->bytes(), ops->bytes_needed(300, 20, f16, cosine, c.hints, 1));
  }
}

// Codes of queries are taken as they stand only where none was left out.
TEST(Prepared, a_query_far_from_everything_leaves_the_next_alone) {
  const Problem problem({.metric = l2, .dtype = f32, .kind = clustered, .n = 4000, .q = 2, .d = 64, .k = 5});
  const MatrixRef base = problem.base;
  const auto prepared = ops_of("cpu").prepare(base, l2, {.k = 5, .queries = 10000, .batch = 2, .self = false}, {});
  if (prepared->description().find("codes of") == std::string::npos) GTEST_SKIP() << "no filter by codes: " << prepared->description();
  Matrix queries(2, 64, DType::f32);
  for (const std::int64_t row : {3, 1000, 2500}) {
    std::fill_n(queries.row<float>(0), 64, infinity);
    std::copy_n(base.row<float>(row), 64, queries.row<float>(1));
    Neighbors both(2, 5), alone(1, 5);
    ops_of("cpu").nearest_rows(*prepared, queries, 5, NeighborsOut(both), {.threads = 1});
    ops_of("cpu").nearest_rows(*prepared, queries.ref().slice(1, 2), 5, NeighborsOut(alone), {.threads = 1});
    EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), both.ids.begin() + 5)) << row;
    EXPECT_EQ(both.ids[5], RowId{row});
  }
}

TEST(Prepared, serves_concurrent_searches) {
  Case c{.metric = l2, .dtype = f32, .kind = clustered, .n = 2000, .q = 100, .d = 33, .k = 10};
  c.threads = 2;
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.queries, problem.base, c.metric, c.k);
  for (const Ops* ops : instruction_sets()) {
    const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
    std::vector<std::future<GuardedLists>> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.push_back(std::async(std::launch::async, [&] {
        GuardedLists lists(c.q, c.k);
        ops->nearest_rows(*prepared, problem.queries, c.k, lists.out(), problem.run);
        return lists;
      }));
    }
    for (auto& caller : callers) EXPECT_TRUE(same_lists(caller.get(), want)) << ops->isa();
  }
}

TEST(Prepared, no_queries_give_no_lists) {
  Case c{.metric = l2, .dtype = f32, .n = 30, .q = 0, .d = 4, .k = 3};
  const Problem problem(c);
  for (const Ops* ops : instruction_sets()) {
    const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
    GuardedLists lists(0, 3);
    ops->nearest_rows(*prepared, problem.queries, 3, lists.out(), problem.run);
    EXPECT_TRUE(lists.guard_stands());
    const RadiusNeighbors within =
        ops->within_radius(*prepared, problem.queries, 1.0f, problem.run);
    EXPECT_EQ(within.offsets, std::vector<std::int64_t>{0});
    EXPECT_TRUE(within.ids.empty());
  }
}


class Errors : public testing::Test {
 protected:
  const Ops& ops = ops_of("cpu");
  Case c{.metric = l2, .dtype = f32, .n = 41, .q = 3, .d = 13, .k = 2};
  Problem problem{c};
  std::unique_ptr<PreparedRows> prepared =
      ops.prepare(problem.base, c.metric, c.hints, problem.run);
  GuardedLists lists{41, 2};

  /// Room for the three queries.
  NeighborsOut few() {
    NeighborsOut out = lists.out();
    out.rows = 3;
    return out;
  }
};

TEST_F(Errors, k_below_one_names_k) {
  for (const std::int64_t k : {0, -7}) {
    NeighborsOut out = few();
    out.k = k;
    expect_error(Fault::invalid_argument, {"k", std::to_string(k)},
                 [&] { ops.nearest_rows(*prepared, problem.queries, k, out, problem.run); });
    out.rows = 41;
    expect_error(Fault::invalid_argument, {"k", std::to_string(k)},
                 [&] { ops.self_nearest(*prepared, k, out, problem.run); });
  }
  EXPECT_EQ(lists.lists.ids[0], RowId{-77});
}

TEST_F(Errors, other_dimension_shows_both) {
  const StridedRows wide(3, 14, f32, 0);
  std::vector<RowId> ids(3, RowId{0});
  std::vector<float> out(3);
  expect_error(Fault::invalid_argument, {"13", "14"},
               [&] { ops.nearest_rows(*prepared, wide, 2, few(), problem.run); });
  expect_error(Fault::invalid_argument, {"13", "14"},
               [&] { ops.within_radius(*prepared, wide, 1, problem.run); });
  expect_error(Fault::invalid_argument, {"13", "14"}, [&] {
    ops.pair_distances(wide, problem.base, l2, ids.data(), 1, out.data(), problem.run);
  });
}

TEST_F(Errors, labels_out_of_range_are_shown) {
  std::vector<RowId> labels(static_cast<std::size_t>(problem.base.ref().rows), RowId{2});
  std::vector<double> sums(3 * 13);
  std::vector<std::int64_t> counts(3);
  const auto sum = [&](std::int64_t count) {
    ops.sum_by_label(problem.base, nullptr, labels.data(), count, sums.data(), counts.data(), problem.run);
  };
  sum(3);
  expect_error(Fault::invalid_argument, {"row 0 has label 2", "[-1, 1]"}, [&] { sum(2); });
  labels.back() = RowId{-2};
  expect_error(Fault::invalid_argument, {"has label -2", "[-1, 2]"}, [&] { sum(3); });
  expect_error(Fault::invalid_argument, {"of 0 labels"}, [&] { sum(0); });
}

TEST_F(Errors, cells_that_are_none_are_shown) {
  const Matrix base(6, 2, DType::u8);
  const std::vector<std::int64_t> sound = {0, 2, 2, 6};
  for (const char* device : {"cpu", "emulated"}) {
    const Ops& ops = ops_of(device);
    for (const std::vector<std::int64_t>& begins : {std::vector<std::int64_t>{}, {0}, {1, 6}, {0, 5}, {0, 4, 2, 6}}) {
      expect_error(Fault::invalid_argument, {"cells must ascend from 0 to the 6 rows"},
                   [&] { ops.prepare_cells(base, {{}, begins}, l2, {}, {}); });
    }
    const auto in_order = [&](std::vector<LocalRow> order) { ops.prepare_cells(base, {order, sound}, l2, {}, {}); };
    expect_error(Fault::invalid_argument, {"an order of 5 rows", "6 rows of the base"}, [&] { in_order({0, 1, 2, 3, 4}); });
    expect_error(Fault::invalid_argument, {"row 6 must be in [0, 5]"}, [&] { in_order({0, 1, 6, 3, 4, 5}); });
    expect_error(Fault::invalid_argument, {"row 1 must be in", "once"}, [&] { in_order({0, 1, 2, 1, 4, 5}); });
    const auto with_names = [&](std::vector<LocalRow> names) { ops.prepare_cells(base, {{}, sound, names}, l2, {}, {}); };
    expect_error(Fault::invalid_argument, {"a naming of 1 rows"}, [&] { with_names({0}); });
    expect_error(Fault::invalid_argument, {"row 3 must be in", "once in a naming"}, [&] { with_names({0, 1, 2, 3, 3, 5}); });
    const auto cells = ops.prepare_cells(base, {{}, sound}, l2, {}, {});
    EXPECT_EQ(cells->cells(), 3);
    Neighbors lists(6, 2);
    const auto search = [&](std::vector<RowId> probes) {
      probes.resize(12, no_row);
      ops.nearest_in_cells(*cells, base, probes.data(), 2, 2, NeighborsOut(lists), {});
    };
    expect_error(Fault::invalid_argument, {"cell 3 must be in [-1, 2]"}, [&] { search({RowId{0}, RowId{3}}); });
    expect_error(Fault::invalid_argument, {"cell -2 must be in [-1, 2]"}, [&] { search({RowId{-2}}); });
    expect_error(Fault::invalid_argument, {"query 1 looks into cell 2 twice"},
                 [&] { search({RowId{2}, RowId{1}, RowId{2}, RowId{2}}); });
    const std::vector<RowId> none(6, no_row);
    const std::vector<std::uint64_t> two_words(2);
    expect_error(Fault::invalid_argument, {"a mask of 2 words", "6 rows"},
                 [&] { ops.nearest_in_cells(*cells, base, none.data(), 1, 2, NeighborsOut(lists), {}, nullptr, {two_words}); });
    RunOptions run;
    run.memory_bytes = run.device_memory_bytes = 1;
    expect_error(Fault::out_of_memory, {"budget of 1 bytes is too small"},
                 [&] { ops.prepare_cells(base, {{}, sound}, l2, {}, run); });
  }
}
TEST_F(Errors, other_dtype_shows_both) {
  const StridedRows half(3, 13, f16, 0);
  std::vector<RowId> ids(3, RowId{0});
  std::vector<float> out(3);
  expect_error(Fault::invalid_argument, {"f32", "f16"},
               [&] { ops.nearest_rows(*prepared, half, 2, few(), problem.run); });
  expect_error(Fault::invalid_argument, {"f32", "f16"},
               [&] { ops.within_radius(*prepared, half, 1, problem.run); });
  expect_error(Fault::invalid_argument, {"f32", "f16"}, [&] {
    ops.pair_distances(half, problem.base, l2, ids.data(), 1, out.data(), problem.run);
  });
}

TEST_F(Errors, dtypes_that_a_metric_has_no_meaning_for_are_unsupported) {
  for (const Metric metric : {hamming, jaccard}) {
    for (const DType dtype : {f32, f16, i8}) {
      const StridedRows rows(5, 4, dtype, 0);
      expect_error(Fault::unsupported,
                   {std::string(name_of(metric)), std::string(name_of(dtype)), "u8"},
                   [&] { ops.prepare(rows, metric, {}, problem.run); });
    }
  }
  for (const DType dtype : {i32, i64}) {
    const Matrix rows(5, 4, dtype);
    expect_error(Fault::unsupported, {"l2", std::string(name_of(dtype))},
                 [&] { ops.prepare(rows, l2, {}, problem.run); });
  }
}

TEST_F(Errors, bytes_of_eight_bits_are_not_taken_for_seven) {
  StridedRows rows(20, 4, u8, 0), query(1, 4, u8, 0);
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) rows.set(i, j, static_cast<float>((i * 7 + j) % 127));
  }
  for (std::int64_t j = 0; j < 4; ++j) query.set(0, j, 127);
  const std::vector<std::int64_t> begins = {0, 20};
  PrepareHints hints;
  hints.seven_bits = true;
  const auto prepared = ops.prepare_cells(rows, {{}, begins}, l2, hints, problem.run);
  const std::vector<RowId> probes(1, RowId{0});
  Neighbors found(1, 2);
  expect_error(Fault::invalid_argument, {"row 0 has the byte 127, expected at most 126"},
               [&] { ops.nearest_in_cells(*prepared, query, probes.data(), 1, 2, NeighborsOut(found), problem.run); });
  rows.set(3, 2, 255);
  expect_error(Fault::invalid_argument, {"row 3 has the byte 255"}, [&] { ops.prepare_cells(rows, {{}, begins}, l2, hints, problem.run); });
}

TEST_F(Errors, a_base_without_rows_is_refused) {
  const StridedRows none(0, 4, f32, 0);
  expect_error(Fault::invalid_argument, {"0"}, [&] { ops.prepare(none, l2, {}, problem.run); });
}

TEST_F(Errors, an_unknown_device_is_named_with_the_known_ones) {
  expect_error(Fault::device, {"abacus", "cpu"}, [] { ops_of("abacus"); });
  expect_error(Fault::device, {"cpu:abacus"}, [] { ops_of("cpu:abacus"); });
}

TEST_F(Errors, a_budget_of_one_byte_is_out_of_memory) {
  RunOptions small = problem.run;
  small.memory_bytes = 1;
  expect_error(Fault::out_of_memory, {"1"}, [&] {
    const auto tight = ops.prepare(problem.base, l2, c.hints, small);
    ops.nearest_rows(*tight, problem.queries, 2, few(), small);
  });
}

TEST_F(Errors, the_bytes_that_it_says_it_needs_are_enough) {
  Case wide{.metric = l2, .dtype = f32, .kind = low_rank, .n = 3000, .q = 50, .d = 64, .k = 10};
  wide.threads = 2;
  Problem fits(wide);
  const Neighbors want = reference::nearest_rows(fits.queries, fits.base, l2, wide.k);
  for (const Ops* set : instruction_sets()) {
    fits.run.memory_bytes = set->bytes_needed(wide.n, wide.d, f32, l2, wide.hints, 2);
    EXPECT_TRUE(same_lists(search(*set, fits, wide), want)) << set->isa();
  }
}


#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double cancel_within_s = 5;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr double cancel_within_s = 5;
#else
constexpr double cancel_within_s = 1;
#endif
#else
constexpr double cancel_within_s = 1;
#endif

/// Cancels `call` after 30 ms and expects Error: cancelled soon after.
void expect_cancelled(const char* what, const std::function<void(const RunOptions&)>& call) {
  using Clock = std::chrono::steady_clock;
  Progress progress;
  const RunOptions run{.threads = 2, .progress = &progress};
  std::atomic<Clock::time_point> cancelled_at{Clock::time_point{}};
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    cancelled_at = Clock::now();
    progress.cancel();
  });
  std::string outcome = "finished";
  try {
    call(run);
  } catch (const Error& error) {
    outcome = error.fault() == Fault::cancelled ? "cancelled" : error.what();
  } catch (const std::exception& error) {
    outcome = join_text("an exception that is no Error: ", error.what());
  }
  const Clock::time_point ended = Clock::now();
  canceller.join();
  EXPECT_EQ(outcome, "cancelled") << what;
  EXPECT_LT(std::chrono::duration<double>(ended - cancelled_at.load()).count(), cancel_within_s)
      << what;
}

/// Uniform bytes: no filter helps, so that the work is long; and quick to make.
Matrix random_bytes(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix matrix(rows, cols, u8);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      matrix.row<std::uint8_t>(i)[j] = static_cast<std::uint8_t>(
          random_bits(seed, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
    }
  }
  return matrix;
}

TEST(Cancel, stops_long_calls_within_a_second) {
  const Matrix base = random_bytes(60000, 128, 1);
  for (const Ops* ops : instruction_sets()) {
    SCOPED_TRACE(ops->isa());
    for (const Metric metric : {l2, chi2}) {
      const PrepareHints hints{.k = 10, .queries = 60000, .batch = 60000, .self = true};
      const auto prepared = ops->prepare(base, metric, hints, RunOptions{.threads = 2});
      Neighbors lists(60000, 10);
      expect_cancelled("nearest_rows", [&](const RunOptions& run) {
        ops->nearest_rows(*prepared, base, 10, NeighborsOut(lists), run);
      });
      expect_cancelled("self_nearest", [&](const RunOptions& run) {
        ops->self_nearest(*prepared, 10, NeighborsOut(lists), run);
      });
      expect_cancelled("within_radius", [&](const RunOptions& run) {
        ops->within_radius(*prepared, base, 1.0f, run);
      });
    }
  }
}

TEST(Cancel, a_call_that_starts_cancelled_throws) {
  Case c{.metric = l2, .dtype = f32, .n = 2000, .q = 50, .d = 30, .k = 5};
  const Problem problem(c);
  Progress progress;
  progress.cancel();
  const RunOptions run{.threads = 2, .progress = &progress};
  for (const Ops* ops : instruction_sets()) {
    SCOPED_TRACE(ops->isa());
    const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
    GuardedLists lists(2000, 5);
    std::vector<RowId> ids(50, RowId{0});
    std::vector<float> out(50);
    expect_error(Fault::cancelled, {"cancel"},
                 [&] { ops->prepare(problem.base, l2, c.hints, run); });
    expect_error(Fault::cancelled, {"cancel"}, [&] {
      NeighborsOut few = lists.out();
      few.rows = 50;
      ops->nearest_rows(*prepared, problem.queries, 5, few, run);
    });
    expect_error(Fault::cancelled, {"cancel"},
                 [&] { ops->self_nearest(*prepared, 5, lists.out(), run); });
    expect_error(Fault::cancelled, {"cancel"},
                 [&] { ops->within_radius(*prepared, problem.queries, 1, run); });
    expect_error(Fault::cancelled, {"cancel"}, [&] {
      ops->pair_distances(problem.queries, problem.base, l2, ids.data(), 1, out.data(), run);
    });
  }
}

TEST(Progressing, is_reported_up_to_its_total_and_no_further) {
  Case c{.metric = l2, .dtype = f32, .kind = clustered, .n = 5000, .q = 500, .d = 32, .k = 5};
  const Problem problem(c);
  std::atomic<int> reports{0};
  std::atomic<int> beyond{0};
  Progress progress([&](std::string_view stage, std::int64_t done, std::int64_t total) {
    ++reports;
    if (stage.empty() || done < 0 || done > total) ++beyond;
  });
  const RunOptions run{.threads = 2, .progress = &progress};
  const Ops& ops = ops_of("cpu");
  const auto prepared = ops.prepare(problem.base, l2, c.hints, run);
  GuardedLists lists(c.q, c.k);
  ops.nearest_rows(*prepared, problem.queries, c.k, lists.out(), run);
  EXPECT_GT(reports, 0);
  EXPECT_EQ(beyond, 0);
}

TEST(Assignment, begins_afresh_after_a_round_that_was_cancelled) {
  test::Case c{.n = 4000, .q = 60, .d = 8, .k = 1};
  const Problem problem(c);
  const Ops& ops = ops_of("cpu");
  const MatrixRef one = problem.queries;
  // Each centroid moves and comes back.
  Matrix other(60, 8, DType::f32);
  for (std::int64_t i = 0; i < 60; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) other.row<float>(i)[j] = one.row<float>(i)[j] + 3;
  }
  const auto assignment = ops.start_assignment(problem.base, Metric::l2, DType::f32, 60, {});
  std::vector<RowId> labels(4000), want_labels(4000);
  std::vector<float> distances(4000), want(4000);
  for (int round = 0; round < 3; ++round) assignment->assign(one, want_labels.data(), want.data(), {});
  // Cancelled when part of the rows are done.
  Progress progress([&](std::string_view, std::int64_t, std::int64_t) { progress.cancel(); });
  RunOptions run;
  run.threads = 1;
  run.progress = &progress;
  expect_error(Fault::cancelled, {}, [&] { assignment->assign(other, labels.data(), distances.data(), run); });
  assignment->assign(one, labels.data(), distances.data(), {});
  EXPECT_EQ(labels, want_labels);
  EXPECT_EQ(distances, want);
}

TEST(Assignment, refuses_what_it_cannot_do) {
  const Ops& ops = ops_of("cpu");
  const Matrix rows(5, 3, DType::u8), floats(2, 3, DType::f32);
  const auto refused = [&](Fault fault, std::initializer_list<std::string> words, const auto& work) { expect_error(fault, words, work); };
  refused(Fault::invalid_argument, {"at least 1 centroid", "0"}, [&] { ops.start_assignment(rows, Metric::l2, DType::f32, 0, {}); });
  refused(Fault::unsupported, {"u8", "not f16"}, [&] { ops.start_assignment(rows, Metric::l2, DType::f16, 2, {}); });
  refused(Fault::unsupported, {"hamming", "not f32"}, [&] { ops.start_assignment(rows, Metric::hamming, DType::f32, 2, {}); });
  refused(Fault::invalid_argument, {"0 x 3"}, [&] { ops.start_assignment(rows.ref().slice(0, 0), Metric::l2, DType::f32, 2, {}); });
  RowId labels[5];
  float distances[5];
  refused(Fault::invalid_argument, {"centroids are 2 x 3 f32", "expected 4 x 3 f32"}, [&] {
    ops.start_assignment(rows, Metric::l2, DType::f32, 4, {})->assign(floats, labels, distances, {});
  });
}

// Of any number of codewords.
TEST(EncodeProducts, what_is_no_number_in_a_part_leaves_others_alone) {
  constexpr std::int64_t n = 70, m = 6, part_dims = 2;
  for (const std::int64_t words : {1, 10, 16, 17, 40, 64, 256}) {
    Matrix codewords(m * words, part_dims, DType::f32), rows(n, m * part_dims, DType::f32), finite(n, m * part_dims, DType::f32);
    for (std::int64_t i = 0; i < m * words * part_dims; ++i) {
      codewords.row<float>(0)[i] = static_cast<float>(random_unit(3, 1, static_cast<std::uint64_t>(i)));
    }
    for (std::int64_t i = 0; i < n * m * part_dims; ++i) {
      finite.row<float>(0)[i] = rows.row<float>(0)[i] = static_cast<float>(random_unit(3, 2, static_cast<std::uint64_t>(i)));
    }
    constexpr float strange[] = {INFINITY, -INFINITY, NAN, 3e38f};
    for (std::int64_t i = 0; i < n; ++i) rows.row<float>(i)[i % m * part_dims] = strange[i % 4];
    std::vector<std::uint8_t> codes(n * m), want(n * m);
    ops_of("cpu").encode_products(rows, codewords, codes.data(), {});
    ops_of("cpu").encode_products(finite, codewords, want.data(), {});
    for (std::int64_t i = 0; i < n * m; ++i) {
      const auto code = static_cast<std::int64_t>(codes[static_cast<std::size_t>(i)]);
      EXPECT_LT(code, words);
      if (i % m == i / m % m) continue;
      EXPECT_EQ(code, want[static_cast<std::size_t>(i)]) << words << " codewords, row " << i / m << ", part " << i % m;
    }
  }
}

}  // namespace
}  // namespace gigaknn
