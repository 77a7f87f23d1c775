// Every op x metric x dtype on the GPU, real or emulated, against the float64 reference: cases as
// small as the emulated one needs, other ones under each of its schedules (conformance.hpp).
#include "ops/conformance.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "ops/gpu/gpu_cells.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/gpu/stream_rows.hpp"
#include "ops/join_cells.hpp"
#include "simt/device.hpp"
#include "simt/memory_budget.hpp"

namespace gigaknn {
namespace {

using namespace test;

#if defined(GIGAKNN_SANITIZED)
constexpr double work_share = 0.05;
constexpr int kinds_apart = 24;  // of the kinds of vectors every 24th
constexpr std::int64_t assigned_entries = 2000;  // of rows, each of which is a query, six times or twelve
#else
const double work_share = gpu::emulated() ? 1 : 30;
constexpr int kinds_apart = 4;  // four schedules see them all
constexpr std::int64_t assigned_entries = 8000;
#endif
constexpr std::int64_t memory_rows = 800;  // of tests of what a device may hold
#ifdef GIGAKNN_TINY_TILES
constexpr bool tiny = true;
#else
constexpr bool tiny = false;
#endif

std::uint64_t schedule() {
  const char* seed = std::getenv("GIGAKNN_EMULATED_SEED");
  return seed ? static_cast<std::uint64_t>(std::atoi(seed)) : 0;
}

const Devices& device() {
  static const Devices devices = {gpu::devices().front()};
  return devices;
}

std::string subject_name(const testing::TestParamInfo<Subject>& info) {
  return std::string(name_of(info.param.metric)) + "_" + std::string(name_of(info.param.dtype));
}

class GpuConformance : public testing::TestWithParam<Subject> {
 protected:
  void sweep(std::int64_t count, double most_work, bool self,
             const std::function<void(const Case&, const Devices&)>& check) {
    CaseMaker maker(static_cast<std::uint64_t>(GetParam().metric) * 10 +
                    static_cast<std::uint64_t>(GetParam().dtype) + 500 + 1000 * schedule());
    for (std::int64_t index = 0; index < count; ++index) {
      Case c = maker.make(GetParam(), index + static_cast<std::int64_t>(schedule()) * count,
                          most_work * work_share, self);
      c.k = std::min<std::int64_t>(c.k, c.n + 3);
      check(c, device());
    }
  }

  // The schedules share the kinds of vectors, of which each has one of two sizes.
  static void every_kind(Case c, std::int64_t odd_n, std::int64_t even_n,
                         const std::function<void(const Case&, const Devices&)>& check) {
    const auto subject = static_cast<int>(c.metric) * 4 + static_cast<int>(c.dtype);
    for (int kind = (subject + static_cast<int>(schedule())) % kinds_apart; kind < kind_count;
         kind += kinds_apart) {
      c.kind = static_cast<Kind>(kind);
      c.n = kind % 2 ? odd_n : even_n;
      c.seed = static_cast<std::uint64_t>(kind) + 100 * schedule();
      check(c, device());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Every, GpuConformance, testing::ValuesIn(subjects()), subject_name);

TEST_P(GpuConformance, nearest_rows_equals_the_reference) {
  sweep(4, 2e5, false, check_nearest_rows);
}
TEST_P(GpuConformance, nearest_set_is_that_of_the_reference) {
  sweep(1, 5e4, false, check_nearest_set);
}
TEST_P(GpuConformance, nearest_one_equals_the_reference) {
  sweep(3, 2e5, false, check_nearest_one);
}
TEST_P(GpuConformance, self_nearest_equals_the_reference) {
  sweep(2, 1e5, true, check_self_nearest);
}
TEST_P(GpuConformance, first_self_leaves_out_only_the_query_itself) {
  sweep(1, 1e5, false, check_first_self);
}
TEST_P(GpuConformance, nearest_in_cells_equals_the_reference) {
  sweep(3, 2e5, false, check_nearest_in_cells);
}
TEST_P(GpuConformance, join_cells_equals_the_reference) {
  sweep(2, 1e5, false, check_join_cells);
}
TEST_P(GpuConformance, product_codes_are_searched_as_the_rows_they_stand_for) {
  if (GetParam().dtype != DType::f32) return;
  if (GetParam().metric == Metric::l2) sweep(2, 2e4, false, check_encode_products);
  if (GetParam().metric == Metric::l2 || GetParam().metric == Metric::euclidean || GetParam().metric == Metric::inner_product) {
    sweep(12, 2e5, false, check_nearest_in_codes);
  }
}
TEST_P(GpuConformance, products_equal_the_reference) {
  if (GetParam().metric != Metric::inner_product) return;
  if (GetParam().dtype == DType::f32 || GetParam().dtype == DType::i8) sweep(2, 1e5, false, check_products);
}
TEST_P(GpuConformance, nearest_among_equals_the_reference) {
  sweep(2, 2e5, false, check_nearest_among);
}
TEST_P(GpuConformance, within_radius_equals_the_reference) {
  sweep(2, 3e4, false, check_within_radius);
}
TEST_P(GpuConformance, pair_distances_equal_the_reference) {
  sweep(3, 3e5, false, check_pair_distances);
}

TEST_P(GpuConformance, assignment_equals_the_reference) {
  sweep(2, 3e4, false, [](Case c, const Devices& devices) {
    c.k = std::min<std::int64_t>(c.k, 12);
    if (gpu::emulated()) c.n = std::min(c.n, std::clamp<std::int64_t>(assigned_entries / c.d, 20, 400));
    check_assignment(c, devices);
  });
}
TEST_P(GpuConformance, sum_by_label_adds_in_the_order_of_its_contract) {
  sweep(2, 1e5, false, check_sum_by_label);
}

// Through several scans.
TEST_P(GpuConformance, scans_answer_every_kind_of_vectors) {
  gpu::multiplies_by_warpgroups(0);  // a trial, the first time, which has launches of its own
  const auto scans = [] {
    auto launches = gpu::launches();
    return launches["scan_products"] + launches["scan_differences"];
  };
  Case c{.metric = GetParam().metric, .dtype = GetParam().dtype};
  c.d = 19;
  c.q = 5;
  c.k = 5;
  c.hints = {.k = 5, .queries = 1000, .batch = 1000, .self = false};
  const std::int64_t before = scans();
  every_kind(c, 1100, 1390, check_nearest_rows);
  EXPECT_GT(scans(), before);
}

// A stretch of a cell for all queries that look into it.
TEST_P(GpuConformance, scans_of_cells_answer_every_kind_of_vectors) {
  Case c{.metric = GetParam().metric, .dtype = GetParam().dtype};
  if (c.metric != Metric::l2 && c.metric != Metric::euclidean && c.metric != Metric::cosine && c.metric != Metric::inner_product) return;
  c.d = 19;
  c.q = 18;
  c.k = 5;
  c.hints = {.k = 5, .queries = 1000, .batch = 1000, .self = false};
  const std::int64_t before = gpu::launches()["scan_products_in_cells"];
  every_kind(c, 200, 290, check_nearest_in_cells);
  EXPECT_GT(gpu::launches()["scan_products_in_cells"], before);
}

// Each pair once, for both of its lists: of sets that are large enough (gpu_rows.cpp, symmetric_capacity).
TEST_P(GpuConformance, symmetric_graphs_answer_every_kind_of_vectors) {
  gpu::multiplies_by_warpgroups(0);  // a trial, the first time, which has launches of its own
  constexpr std::int64_t rows_a_neighbor = tiny ? 16 : 128;
  const auto check = [](const Case& c, const Devices& devices) {
    const auto scans = [] {
      auto launches = gpu::launches();
      return launches["scan_products_both"] + launches["scan_differences_both"];
    };
    const std::int64_t before = scans();
    check_self_nearest(c, devices);
    const std::vector<bool> usable = reference::Rows(Problem(c).base, c.metric).usable;
    if (std::count(usable.begin(), usable.end(), true) <= rows_a_neighbor * c.k) return;  // of small numbers all are zero as integers
    EXPECT_GT(scans(), before) << "lists were found one by one: " << c;
  };
  Case c{.metric = GetParam().metric, .dtype = GetParam().dtype};
  c.d = 19;
  c.k = tiny ? 4 : 1;  // with tiny tiles lists of fewer have too little room
  c.hints = {.k = c.k, .queries = 1000, .batch = 1000, .self = true};
  every_kind(c, tiny ? 150 : 201, tiny ? 101 : 190, check);
  // Lists of several, which need larger sets: of one kind of vectors, each subject under some schedules.
  const int turn = static_cast<int>(c.metric) * 4 + static_cast<int>(c.dtype) + static_cast<int>(schedule());
  if (gpu::emulated() && turn % 3 != 0) return;
  c.k = c.hints.k = 3;
  c.n = tiny ? 150 : 520;
  c.kind = static_cast<Kind>(turn * 5 % kind_count);
  check(c, device());
}

Case shape(Metric metric, DType dtype, std::int64_t n, std::int64_t q, std::int64_t d,
           std::int64_t k) {
  Case c{.metric = metric, .dtype = dtype, .kind = Kind::clustered, .n = n, .q = q, .d = d, .k = k};
  c.hints = {.k = k, .queries = 1000, .batch = 1000, .self = false};
  return c;
}

TEST(GpuEncodeProducts, of_distances_that_round_alike_the_first_counts) { check_close_codewords(device()); }
TEST(GpuNearestInCodes, of_rows_that_float32_cannot_tell_apart_those_are_found_that_are_nearest) { check_close_codes(device(), true); }
TEST(GpuSelection, selects_any_k) {
  check_select_any_k(device());
}

TEST(GpuSearch, answers_any_k) {
  for (const std::int64_t k : {1, 10, 32, 100, 1000, 2048, 5000}) {
    check_nearest_rows(shape(Metric::l2, DType::f32, 5200, 3, 6, k), device());
    check_nearest_rows(shape(Metric::l1, DType::u8, 5200, 2, 6, k), device());
  }
}
// Two tiles of queries and more.
TEST(GpuSearch, answers_many_queries_of_long_lists) {
  check_nearest_rows(shape(Metric::l2, DType::f32, 5200, 70, 6, 1000), device());
}
// The emulated device needs 1 s for the lists of some 1,000 rows, 5 for those of 2,000, 35 for those of 5,000.
TEST(GpuSearch, graphs_have_any_k) {
#if defined(GIGAKNN_SANITIZED) || defined(GIGAKNN_TINY_TILES)
  check_self_any_k(device(), 100);
#else
  check_self_any_k(device(), !gpu::emulated() ? 5000 : schedule() == 0 ? 2048 : 1000);
#endif
}
TEST(GpuSearch, crosses_tiles_of_queries_and_slabs_of_dimensions) {
  check_nearest_rows(shape(Metric::l2, DType::f32, 1300, 131, 40, 3), device());
  check_nearest_rows(shape(Metric::inner_product, DType::i8, 1300, 131, 70, 3), device());
  check_nearest_rows(shape(Metric::l1, DType::f16, 1300, 67, 33, 3), device());
  // Too long for the queries' codes to stay in shared memory.
  check_nearest_rows(shape(Metric::cosine, DType::f32, 1100, 40, 3000, 3), device());
}
// Of a sample a few bound what is looked at.
TEST(GpuSearch, samples_bound_lists_of_many) {
  gpu::multiplies_by_warpgroups(0);  // a trial, the first time, which has launches of its own
  for (const auto& [metric, dtype] : {std::pair(Metric::l2, DType::f32), {Metric::l2, DType::u8}, {Metric::cosine, DType::f16}, {Metric::l1, DType::u8}, {Metric::l1, DType::f32}, {Metric::chi2, DType::f32}}) {
    for (const Kind kind : {Kind::clustered, Kind::small_integers, Kind::duplicates, Kind::far_cluster}) {
      // Lists of k up to 128 are a warp's, others a block's.
      Case c = shape(metric, dtype, 9000, kind == Kind::clustered ? 40 : 3, 3, kind == Kind::small_integers ? 100 : 300);
      c.kind = kind;
      const auto before = gpu::launches();
      const auto launched = [&](const std::string& name) { return gpu::launches()[name] - (before.contains(name) ? before.at(name) : 0); };
      check_nearest_rows(c, device());
      EXPECT_GT(launched("count_unproven"), 0) << c;
      EXPECT_EQ(launched("count_unproven"), launched("set_bounds")) << "all was done again: " << c;
    }
  }
}
// All that is near stands in the first places (gpu_rows.cpp, scatter), of which the sample is: it promises more elsewhere.
TEST(GpuSearch, samples_that_mislead_are_noticed) {
  constexpr std::int64_t n = 9000, k = 300, near = 1000, step = 5563;
  static_assert(std::gcd(step, n) == 1);
  for (const DType dtype : {DType::f32, DType::u8}) {
    Matrix base(n, 2, dtype);
    const auto put = [&](std::int64_t row, int value) {
      for (std::int64_t j = 0; j < 2; ++j) {
        dtype == DType::u8 ? void(base.row<std::uint8_t>(row)[j] = static_cast<std::uint8_t>(value))
                           : void(base.row<float>(row)[j] = static_cast<float>(value));
      }
    };
    for (std::int64_t place = 0; place < n; ++place) {
      put(place * step % n, place < near ? static_cast<int>(place % 50) : static_cast<int>(200 + place % 50));
    }
    const MatrixRef queries = base.ref().slice(0, 3);
    const PrepareHints hints{.k = k, .queries = 1000, .batch = 1000, .self = false};
    const auto prepared = device().front()->prepare(base, Metric::l2, hints, {});
    GuardedLists lists(3, k);
    device().front()->nearest_rows(*prepared, queries, k, lists.out(), {}, -1);
    EXPECT_TRUE(same_lists(lists, reference::nearest_rows(queries, base, Metric::l2, k, -1))) << name_of(dtype);
  }
}
// Lists have k rows, but of those just behind the bound that the sample told a filter lets some through and others not.
TEST(GpuSearch, samples_that_mislead_a_little_are_noticed) {
  constexpr std::int64_t n = 9000, k = 300, near = 100, step = 5563;
  for (const std::int64_t some : {400, 420, 440, 460, 480}) {
    if (!is_of_share(some / 20)) continue;
    Matrix base(n, 8, DType::f32);
    for (std::int64_t place = 0; place < n; ++place) {
      float* const row = base.row<float>(place * step % n);
      double squared = 0;
      for (std::int64_t j = 0; j < 8; ++j) squared += std::pow(row[j] = static_cast<float>(random_below(1 << 20, 5, static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(place))) - (1 << 19), 2);
      // A third of the places that are sampled first, then `some` of them a little farther, all others far.
      const bool is_far = place >= near && (place < 3 * near || place * some % n >= some);
      const double wanted = place < near ? 1 : is_far ? 9 : 1.01 + 6 * static_cast<double>(place) / n;
      // The others are far in one direction, and so is the centre: codes are coarse where queries are.
      for (std::int64_t j = 0; j < 8; ++j) row[j] = static_cast<float>((is_far ? 26 : 20) + row[j] * std::sqrt(wanted / squared));
    }
    Matrix queries(8, 8, DType::f32);
    for (std::int64_t i = 0; i < 64; ++i) {
      queries.row<float>(0)[i] = 20 + 0.01f * static_cast<float>(random_below(9, 7, 0, static_cast<std::uint64_t>(i)));
    }
    for (std::int64_t i = 0; i < queries.rows(); ++i) {  // each alone: where one list is found out, all are made anew
      const auto prepared = device().front()->prepare(base, Metric::l2, {.k = k, .queries = 1000, .batch = 1000, .self = false}, {});
      const MatrixRef query = queries.ref().slice(i, i + 1);
      GuardedLists lists(1, k);
      device().front()->nearest_rows(*prepared, query, k, lists.out(), {}, -1);
      EXPECT_TRUE(same_lists(lists, reference::nearest_rows(query, base, Metric::l2, k, -1))) << some;
    }
  }
}
// Where the trial fails products are still right, by mma.sync, and slower: this is what says so.
TEST(GpuSearch, warpgroups_multiply_where_there_are_such) {
  EXPECT_EQ(gpu::multiplies_by_warpgroups(0), simt::has_warpgroup_products(0));
  EXPECT_EQ(gpu::streams_slabs(0), simt::has_warpgroup_products(0) && simt::streams_products());
}
// So many tiles that stages are used again, two tiles of queries, with their codes in shared memory and slab by slab; more pairs come
// through than a warp has room for.
TEST(GpuSearch, scans_cross_stages_and_rounds) {
  std::int64_t number = 0;
  for (const std::int64_t k : {3, 40}) {
    for (const Case& c : {shape(Metric::l2, DType::u8, 4100, 270, 16, k), shape(Metric::cosine, DType::f32, 2100, 270, 20, k),
                          // Streamed by two or three slabs, the last of them a part.
                          shape(Metric::l2, DType::f32, 1100, 270, 100, k), shape(Metric::cosine, DType::f32, 1100, 40, 180, k),
                          shape(Metric::l2, DType::u8, 1100, 270, 200, k), shape(Metric::inner_product, DType::i8, 1100, 40, 150, k),
                          // Beyond what is streamed.
                          shape(Metric::l2, DType::f32, 1100, 40, 400, k), shape(Metric::inner_product, DType::i8, 1100, 40, 600, k)}) {
      if (is_of_share(number++)) check_nearest_rows(c, device());
    }
    for (const DType dtype : {DType::u8, DType::f32}) {
      Case c = shape(Metric::l2, dtype, 1700, 1, 16, k);
      c.hints.self = true;
      if (is_of_share(number++)) check_self_nearest(c, device());
    }
  }
}
TEST(GpuCells, scans_cross_stretches_and_tiles) {
  for (const DType dtype : {DType::f32, DType::u8}) {
    for (const std::int64_t k : {1, 10, 300}) {
      constexpr std::int64_t n = tiny ? 1300 : 5200;  // with tiny tiles stretches are short
      Case c = shape(Metric::l2, dtype, n, 17, 6, k);
      c.most_cell_rows = n * 3 / 4;
      const std::int64_t before = gpu::launches()["scan_products_in_cells"];
      check_nearest_in_cells(c, device());
      EXPECT_GT(gpu::launches()["scan_products_in_cells"], before);
    }
    Case c = shape(Metric::cosine, dtype, 700, 131, 40, 3);
    c.most_cell_rows = 400;
    check_nearest_in_cells(c, device());
  }
}
// More come through than a list has room for, whatever bounds it.
TEST(GpuCells, lists_overflow_with_rows_that_are_alike) {
  constexpr std::int64_t n = 3000, queries = 20;
  for (const DType dtype : {DType::f32, DType::u8}) {
    Matrix base(n, 4, dtype), some(queries, 4, dtype);
    const auto fill = [&](Matrix& rows, int value) {
      for (std::int64_t i = 0; i < rows.rows() * 4; ++i) {
        dtype == DType::u8 ? void(rows.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(value))
                           : void(rows.row<float>(0)[i] = static_cast<float>(value));
      }
    };
    fill(base, 3);
    fill(some, 1);
    std::vector<LocalRow> names(n);
    for (std::int64_t i = 0; i < n; ++i) names[static_cast<std::size_t>(i)] = static_cast<LocalRow>((i * 7 + 5) % n);
    const std::vector<std::int64_t> begins = {0, 200, 1700, 1700, n};
    // Neighbouring queries look into other cells: what stands behind a list that is full belongs to others.
    std::vector<RowId> probes;
    for (std::int64_t i = 0; i < queries; ++i) {
      for (const std::int64_t cell : {std::int64_t{0}, i % 2 ? std::int64_t{1} : std::int64_t{3}}) probes.push_back(RowId{cell});
    }
    for (const auto& [k, masked] : {std::pair<std::int64_t, bool>{1, false}, {10, false}, {1400, false}, {10, true}}) {
      // The rows of the first cell do not count, so that nothing bounds what comes behind it.
      std::vector<std::uint64_t> words(masked ? RowMask::words_for(n) : 0, ~std::uint64_t{0});
      for (std::size_t i = 0; masked && i < 200; ++i) words[names[i] / 64] &= ~(std::uint64_t{1} << (names[i] % 64));
      const PrepareHints hints{.k = k, .queries = queries, .batch = queries, .self = false};
      const auto prepared = device().front()->prepare_cells(base, {{}, begins, names}, Metric::euclidean, hints, {});
      GuardedLists lists(queries, k);
      device().front()->nearest_in_cells(*prepared, some, probes.data(), 2, k, lists.out(), {}, nullptr, {words});
      Neighbors want(queries, k);
      for (std::int64_t i = 0; i < queries; ++i) {
        std::vector<LocalRow> found(names.begin(), names.begin() + (masked ? 0 : 200));
        found.insert(found.end(), names.begin() + (i % 2 ? 200 : 1700), names.begin() + (i % 2 ? 1700 : n));
        std::sort(found.begin(), found.end());  // all as near: by name
        for (std::int64_t j = 0; j < k; ++j) {
          want.ids[static_cast<std::size_t>(i * k + j)] = RowId{found[static_cast<std::size_t>(j)]};
          want.distances[static_cast<std::size_t>(i * k + j)] = 4;
        }
      }
      EXPECT_TRUE(same_lists(lists, want)) << name_of(dtype) << ", k=" << k << (masked ? ", masked" : "");
    }
  }
}
TEST(GpuCells, memory_stays_within_what_was_said) {
  std::int64_t scanned = 0;
  for (const std::size_t share : {10, 11, 15, 20, 40}) {
    Case c = shape(Metric::l2, DType::f32, 1500, 40, 24, 10);
    c.hints.queries = c.hints.batch = c.q;
    const Problem problem(c);
    const std::vector<std::int64_t> begins = {0, 300, 700, c.n};
    std::vector<RowId> probes;
    for (std::int64_t i = 0; i < c.q * 3; ++i) probes.push_back(RowId{i % 3});
    const Ops& ops = *device().front();
    RunOptions run = problem.run;
    run.device_memory_bytes = gpu::GpuCells::device_bytes_needed(c.n, c.d, c.dtype, 3, c.hints) * share / 10;
    {
      const simt::MemoryBudget budget(run.device_memory_bytes);  // the device refuses more
      const std::int64_t before = gpu::launches()["scan_products_in_cells"];
      const auto prepared = ops.prepare_cells(problem.base, {{}, begins}, c.metric, c.hints, run);
      GuardedLists lists(c.q, c.k);
      const std::vector<std::uint64_t> words(RowMask::words_for(c.n), ~std::uint64_t{0});
      ops.nearest_in_cells(*prepared, problem.queries, probes.data(), 3, c.k, lists.out(), run, nullptr, {words});
      EXPECT_TRUE(same_lists(lists, reference::nearest_rows(problem.queries, problem.base, c.metric, c.k))) << share;
      scanned += gpu::launches()["scan_products_in_cells"] > before;
    }
    EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
  }
  EXPECT_GT(scanned, 0);
  EXPECT_LT(scanned, 5);
}
// Rows find those that look into their cells, too, each once, among what they have found before.
TEST(GpuCells, joins_are_scans) {
  std::uint64_t seed = 0;
  for (const Kind kind : {Kind::clustered, Kind::gaussian, Kind::duplicates, Kind::all_equal, Kind::nonfinite}) {
    for (const DType dtype : {DType::f32, DType::u8, DType::i8}) {
      if (kind == Kind::nonfinite && dtype != DType::f32) continue;
      const std::int64_t k = ++seed % 3 == 0 ? 150 : 10;
      if (!is_of_share(static_cast<std::int64_t>(seed + seed / 3))) continue;
      Case c = shape(seed % 2 ? Metric::cosine : Metric::l2, dtype, 400, 400, 12, k);
      c.kind = kind;
      c.seed = seed;
      c.hints = {.k = k, .queries = c.n, .batch = c.n, .self = true};
      const std::int64_t before = gpu::launches()["change_rule"];
      check_join_cells(c, device());
      EXPECT_GT(gpu::launches()["change_rule"], before) << c;
    }
  }
}
// Visitors that have no room beside the base come in smaller turns, of a part of a cell too.
TEST(GpuCells, joining_stays_within_what_was_said) {
  constexpr std::int64_t cells = 10, width = 2;
  Case c = shape(Metric::l2, DType::f32, tiny ? 300 : memory_rows, 1, 32, 10);
  c.hints = {.k = c.k, .queries = c.n, .batch = c.n, .self = true};
  const Problem problem(c);
  std::vector<std::int64_t> begins;
  for (std::int64_t cell = 0; cell <= cells; ++cell) begins.push_back(c.n * cell * (cell + 1) / (cells * (cells + 1)));
  std::vector<RowId> rows, own, probes;
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    for (std::int64_t i = begins[static_cast<std::size_t>(cell)]; i < begins[static_cast<std::size_t>(cell + 1)]; ++i) {
      rows.push_back(RowId{i});
      own.push_back(RowId{cell});
      for (const std::int64_t step : {1, 4}) probes.push_back(RowId{(cell + step) % cells});
    }
  }
  const auto join = [&](const Ops& ops, const RunOptions& run, NeighborsOut out) {
    const auto prepared = ops.prepare_cells(problem.base, {{}, begins}, c.metric, c.hints, run);
    ops.join_cells(*prepared, rows, own.data(), probes.data(), width, c.k, out, run);
  };
  Neighbors want(c.n, c.k);
  join(*device().front(), problem.run, NeighborsOut(want));  // as joins_are_scans shows it to be right
  const std::size_t least = gpu::GpuCells::device_bytes_needed(c.n, c.d, c.dtype, cells, c.hints);
  for (const std::size_t share : {0, 10, 400}) {
    const std::size_t room = least * share / 10;
    const std::int64_t before = gpu::launches()["change_rule"];
    RunOptions run = problem.run;
    run.device_memory_bytes = room;
    const simt::MemoryBudget budget(room);  // the device refuses more
    GuardedLists lists(c.n, c.k);
    join(*device().front(), run, lists.out());
    EXPECT_TRUE(same_lists(lists, want)) << room;
    EXPECT_EQ(gpu::launches()["change_rule"] > before, share != 10)
        << share << ": visitors are scanned behind what rows have found, or searched apart";
  }
  RunOptions run = problem.run;
  run.device_memory_bytes = least;
  const std::size_t base = device().front()->prepare_cells(problem.base, {{}, begins}, c.metric, c.hints, run)->bytes();
  if (!tiny) {
    EXPECT_GT(base + gpu::GpuCells::device_bytes_needed(width * c.n, c.d, c.dtype, cells, {.k = c.k, .self = false}), least)
        << "all visitors have room";
  }
  run.device_memory_bytes = least - 1;
  expect_error(Fault::out_of_memory, {"too small"}, [&] { join(*device().front(), run, NeighborsOut(want)); });
}
TEST(GpuSearch, few_queries_share_the_base_among_blocks) {
  for (const std::int64_t q : {1, 2, 16}) {
    Case c = shape(Metric::l2, DType::f32, 9000, q, 4, 10);
    c.hints.queries = q;
    check_nearest_rows(c, device());
  }
}
// What float32, or integers, tell of keys: of values of every kind, of rows of every length.
TEST(GpuSearch, rows_that_stream_past_few_queries_lose_no_neighbour) {
  constexpr std::int64_t lengths[] = {1, 3, 16, 33, 100, 128, 129, 260};
  std::int64_t number = static_cast<std::int64_t>(schedule());
  const std::int64_t before = gpu::launches()["stream_rows"];
  std::int64_t streamed = 0;
  for (const Subject& subject : subjects()) {
    for (; number < kind_count; number += kinds_apart) {
      Case c = shape(subject.metric, subject.dtype, 30 + 47 * (number % 7), 1 + number % 3, lengths[number % std::size(lengths)],
                     number % 2 ? 3 : 20);
      c.kind = static_cast<Kind>(number);
      c.hints.queries = c.q;
      c.strided = number % 5 == 0;
      check_nearest_rows(c, device());
      check_first_self(c, device());
      const bool few = !tiny || c.q == 1;  // with tiny tiles more are filtered
      if (few && gpu::can_stream_rows(c.metric, c.dtype, c.d)) streamed += 2;
    }
    number -= kind_count - 1;  // other kinds of the next subject
  }
  EXPECT_GT(gpu::launches()["stream_rows"] - before, streamed / 2) << "all but those whose rows are all far";
  EXPECT_GT(streamed, 0);
}
// Rows of the same elements in other orders: one distance, ties by number, of which sums in float32 say something else each.
TEST(GpuSearch, rows_that_stream_past_few_queries_are_not_told_apart_by_rounding) {
  constexpr std::int64_t n = 400, d = 130;
  for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::l1, Metric::inner_product, Metric::cosine}) {
    Matrix base(n, d, DType::f32), query(1, d, DType::f32);
    std::vector<float> row(d);
    for (std::int64_t j = 0; j < d; ++j) {
      row[static_cast<std::size_t>(j)] = static_cast<float>(0.1 + random_unit(5, 1, static_cast<std::uint64_t>(j)));
      query.row<float>(0)[j] = metric == Metric::inner_product || metric == Metric::cosine ? 1.0f : 0.0f;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = d - 1; j > 0; --j) {
        std::swap(row[static_cast<std::size_t>(j)],
                  row[random_below(static_cast<std::uint64_t>(j + 1), 6, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j))]);
      }
      std::copy(row.begin(), row.end(), base.row<float>(i));
    }
    const Ops& ops = *device().front();
    const auto prepared = ops.prepare(base, metric, {.k = 9, .queries = 1, .batch = 1, .self = false}, {});
    GuardedLists lists(1, 9);
    ops.nearest_rows(*prepared, query, 9, lists.out(), {}, -1);
    EXPECT_TRUE(same_lists(lists, reference::nearest_rows(query, base, metric, 9))) << name_of(metric);
  }
}
// Terms below half of the smallest float are nothing there, and those above it twice as much, squares of a norm too: rows that are all of
// such terms seem nearer, or farther, than others.
TEST(GpuSearch, terms_that_vanish_lose_no_neighbour) {
  struct Craft {
    Metric metric;
    float query, each, one, rest;  // elements: of the query, of every other row, and of the others the first and those behind it
  };
  constexpr std::int64_t n = 80, d = 100;
  for (const Craft& craft :
       {Craft{Metric::l2, 0, 2.7e-23f, 2.8e-22f, 0}, Craft{Metric::euclidean, 0, 2.7e-23f, 2.8e-22f, 0},
        Craft{Metric::inner_product, 2.6e-23f, 2.72e-23f, 3e-21f, 0}, Craft{Metric::cosine, 2.6e-23f, 2.6e-23f, 4e-22f, 2.8e-23f},
        Craft{Metric::cosine, 1e10f, 1e-23f, 2.7e-19f, 1e-19f}}) {
    Matrix base(n, d, DType::f32), query(1, d, DType::f32);
    for (std::int64_t j = 0; j < d; ++j) {
      query.row<float>(0)[j] = craft.query;
      for (std::int64_t i = 0; i < n; ++i) base.row<float>(i)[j] = i % 2 ? craft.each : j == 0 ? craft.one : craft.rest;
    }
    const Ops& ops = *device().front();
    const auto prepared = ops.prepare(base, craft.metric, {.k = 9, .queries = 1, .batch = 1, .self = false}, {});
    GuardedLists lists(1, 9);
    ops.nearest_rows(*prepared, query, 9, lists.out(), {}, -1);
    EXPECT_TRUE(same_lists(lists, reference::nearest_rows(query, base, craft.metric, 9))) << name_of(craft.metric) << " of " << craft.query;
  }
}
// Fewer than k rows whose interval has an upper end: what is bisected then is a value that no key has.
TEST(GpuSearch, rows_that_are_not_told_bound_nothing) {
  for (const std::int64_t k : {2, 5}) {
    Matrix base(100, 3, DType::f32), query(1, 3, DType::f32);
    std::fill_n(base.row<float>(0), 300, 0.0f);
    for (std::int64_t i = 10; i < 14; ++i) base.row<float>(i)[i % 3] = 1e-25f;
    std::fill_n(query.row<float>(0), 3, 1.0f);
    const Ops& ops = *device().front();
    const auto prepared = ops.prepare(base, Metric::cosine, {.k = k, .queries = 1, .batch = 1, .self = false}, {});
    GuardedLists lists(1, k);
    ops.nearest_rows(*prepared, query, k, lists.out(), {}, -1);
    EXPECT_TRUE(same_lists(lists, reference::nearest_rows(query, base, Metric::cosine, k))) << k;
  }
}
// A part of several tiles, whose list fills again and again, and lists that are longer than a tile.
TEST(GpuSearch, rows_stream_past_in_tiles) {
  for (const auto& [kind, n, k] : {std::tuple{Kind::gaussian, 26000, 10}, {Kind::approaching, 26000, 10}, {Kind::duplicates, 4500, 300}, {Kind::all_equal, 26000, 10},
                                   {Kind::heavy_tails, 3000, 2999}, {Kind::nonfinite, 26000, 20}}) {
    for (const DType dtype : {DType::f32, DType::u8}) {
      Case c = shape(Metric::l2, dtype, n, 1, 5, k);
      c.kind = kind;
      c.hints.queries = 1;
      check_nearest_rows(c, device());
    }
  }
}
// Also where the base was prepared for many, if it is large: it streams past them, and is not scanned.
#if !defined(GIGAKNN_SANITIZED) && !defined(GIGAKNN_TINY_TILES)
TEST(GpuSearch, few_queries_stream_a_large_base_that_is_prepared_for_many) {
  for (const auto& [q, streams] : {std::pair{3, true}, {20, false}}) {
    const auto before = gpu::launches()["stream_rows"];
    check_nearest_rows(shape(Metric::l2, DType::f32, 70000, q, 2, 5), device());
    EXPECT_EQ(gpu::launches()["stream_rows"] > before, streams) << q;
  }
}
#endif
TEST(GpuSearch, no_place_falls_between_the_blocks_that_share_a_base) {
  Case c = shape(Metric::l2, DType::f32, 70, 1, 3, 1);  // with tiny tiles eight blocks share it
  c.kind = Kind::gaussian;
  c.hints.queries = 1;
  const Problem problem(c);
  const Ops& ops = *device().front();
  const auto prepared = ops.prepare(problem.base, c.metric, c.hints, problem.run);
  for (std::int64_t row = 0; row < c.n; ++row) {
    GuardedLists lists(1, 1);
    ops.nearest_rows(*prepared, problem.base.ref().slice(row, row + 1), 1, lists.out(), problem.run,
                     -1);
    EXPECT_EQ(lists.lists.distances[0], 0.0f) << row;
    EXPECT_EQ(value_of(lists.lists.ids[0]), row);
  }
}
TEST(GpuSearch, terms_of_chi2_that_are_rounded_up_lose_no_neighbour) {
  // In units of the smallest float each term is 9/5, which float32 rounds to 2; the decoys' keys
  // lie between.
  constexpr float unit = 0x1p-149f;
  constexpr std::int64_t n = 1500;
  constexpr std::int64_t d = 100;
  Matrix base(n, d, DType::f32);
  Matrix queries(1, d, DType::f32);
  for (std::int64_t j = 0; j < d; ++j) queries.row<float>(0)[j] = unit;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j)
      base.row<float>(i)[j] = i % 7 == 3 ? 4 * unit : j < 94 ? 4 * unit : 5 * unit;
  }
  const Ops& ops = *device().front();
  const PrepareHints hints{.k = 3, .queries = 1000, .batch = 1000, .self = false};
  const auto prepared = ops.prepare(base, Metric::chi2, hints, {});
  GuardedLists lists(1, 3);
  ops.nearest_rows(*prepared, queries, 3, lists.out(), {}, -1);
  const Neighbors want = reference::nearest_rows(queries, base, Metric::chi2, 3);
  EXPECT_TRUE(same_lists(lists, want));
  const float radius = want.distances[0];
  EXPECT_TRUE(same_lists(ops.within_radius(*prepared, queries, radius, {}),
                         reference::within_radius(queries, base, Metric::chi2, radius)));
}
// Sums of two elements beyond the largest float, of which the differences are small or not.
TEST(GpuSearch, chi2_of_the_largest_floats_loses_no_neighbour) {
  constexpr std::int64_t n = 600;
  Matrix base(n, 2, DType::f32);
  Matrix queries(3, 2, DType::f32);
  for (std::int64_t i = 0; i < 3; ++i) {
    queries.row<float>(i)[0] = 3.4e38f;
    queries.row<float>(i)[1] = 0.5f * static_cast<float>(i);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const bool near_row = i % 50 == 7;
    base.row<float>(i)[0] = near_row ? 3.4e38f : 1e38f + 1e34f * static_cast<float>(i);
    base.row<float>(i)[1] = near_row ? 1.0f + 0.01f * static_cast<float>(i) : 0.0f;
  }
  const Ops& ops = *device().front();
  const PrepareHints hints{.k = 5, .queries = 1000, .batch = 1000, .self = true};
  const auto prepared = ops.prepare(base, Metric::chi2, hints, {});
  GuardedLists lists(3, 5);
  ops.nearest_rows(*prepared, queries, 5, lists.out(), {}, -1);
  EXPECT_TRUE(same_lists(lists, reference::nearest_rows(queries, base, Metric::chi2, 5)));
  GuardedLists graph(n, 5);
  ops.self_nearest(*prepared, 5, graph.out(), {});
  EXPECT_TRUE(same_lists(graph, reference::nearest_rows(base, base, Metric::chi2, 5, 0)));
}
// Terms below zero, which bounds by float32 are not made for: one element of a row is enough, wherever it stands.
TEST(GpuSearch, chi2_of_values_below_zero_loses_no_neighbour) {
  constexpr std::int64_t n = 1100, d = 19;
  for (const bool of_queries : {false, true}) {
    Matrix base(n, d, DType::f32), queries(20, d, DType::f32);
    const auto fill = [&](Matrix& rows, bool below_zero, std::uint64_t seed) {
      for (std::int64_t i = 0; i < rows.rows(); ++i) {
        for (std::int64_t j = 0; j < d; ++j) {
          const double value = random_unit(seed, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
          rows.row<float>(i)[j] = static_cast<float>(below_zero && j > 0 ? 2 * value - 1 : value);
        }
      }
    };
    fill(base, !of_queries, 1);
    fill(queries, of_queries, 2);
    const Ops& ops = *device().front();
    const auto prepared = ops.prepare(base, Metric::chi2, {.k = 5, .queries = 1000, .batch = 1000, .self = false}, {});
    GuardedLists lists(queries.rows(), 5);
    ops.nearest_rows(*prepared, queries, 5, lists.out(), {}, -1);
    EXPECT_TRUE(same_lists(lists, reference::nearest_rows(queries, base, Metric::chi2, 5))) << of_queries;
  }
}
TEST(GpuSearch, memory_stays_within_what_was_said) {
  for (const auto& [k, q] :
       {std::pair<std::int64_t, std::int64_t>{3, 40}, {200, 40}, {10, 1}, {200, 5}}) {
    Case c = shape(Metric::l2, DType::f32, q < 17 ? 9000 : 1500, q, q < 17 ? 4 : 24, k);
    c.hints.queries = c.hints.batch = q;
    const Problem problem(c);
    const Ops& ops = *device().front();
    const std::size_t needed = ops.device_bytes_needed(c.n, c.d, c.dtype, c.metric, c.hints);
    RunOptions run = problem.run;
    run.device_memory_bytes = needed;
    const Neighbors want = reference::nearest_rows(problem.queries, problem.base, c.metric, c.k);
    {
      const simt::MemoryBudget budget(needed);  // the device refuses more
      const auto prepared = ops.prepare(problem.base, c.metric, c.hints, run);
      GuardedLists lists(c.q, c.k);
      ops.nearest_rows(*prepared, problem.queries, c.k, lists.out(), run, -1);
      EXPECT_TRUE(same_lists(lists, want)) << c;
    }
    EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
  }
}
TEST(GpuSearch, within_a_radius_memory_stays_within_what_was_said) {
  std::int64_t number = 0;
  for (const auto& [metric, dtype, expected, launch] :
       {std::tuple{Metric::l2, DType::f32, 1000, "scan_products"}, {Metric::l2, DType::u8, 1000, "scan_products"},
        {Metric::l1, DType::f32, 1000, "scan_differences"}, {Metric::l1, DType::f32, 1, "admit_all"}}) {
    if (!is_of_share(number++)) continue;
    Case c = shape(metric, dtype, 3000, 4, 6, 2);
    c.hints.queries = expected;
    c.hints.batch = 1;
    const Problem problem(c);
    const Ops& ops = *device().front();
    RunOptions run = problem.run;
    run.device_memory_bytes = ops.device_bytes_needed(c.n, c.d, c.dtype, c.metric, c.hints);
    const simt::MemoryBudget budget(run.device_memory_bytes);
    const auto prepared = ops.prepare(problem.base, c.metric, c.hints, run);
    const Neighbors some = reference::nearest_rows(problem.queries, problem.base, c.metric, 2000);
    for (const float radius : {some.distances[1], some.distances[1999], 1e30f}) {
      auto before = gpu::launches();
      EXPECT_TRUE(same_lists(ops.within_radius(*prepared, problem.queries, radius, run),
                             reference::within_radius(problem.queries, problem.base, c.metric, radius)))
          << radius << ' ' << c;
      EXPECT_GT(gpu::launches()[launch], before[launch]);
    }
    expect_error(Fault::out_of_memory, {"a query needs"}, [&] {
      Neighbors many(c.q, 2500);
      ops.nearest_rows(*prepared, problem.queries, 2500, NeighborsOut(many), run, -1);
    });
  }
}
TEST(GpuSearch, memory_of_a_graph_stays_within_its_budget) {
  Case c = shape(Metric::l2, DType::f32, memory_rows, 1, 6, 3);
  c.hints.self = true;
  const Problem problem(c);
  const Ops& ops = *device().front();
  const std::size_t needed = ops.device_bytes_needed(c.n, c.d, c.dtype, c.metric, c.hints);
  const Neighbors want = reference::nearest_rows(problem.base, problem.base, c.metric, c.k, 0);
  std::int64_t symmetric = 0;
  for (const std::size_t share : {4, 6, 10, 40, 400}) {
    const std::size_t bytes = needed / 4 * share;
    RunOptions run = problem.run;
    run.device_memory_bytes = bytes;
    const simt::MemoryBudget budget(bytes);
    const std::int64_t before = gpu::launches()["scan_products_both"];
    const auto prepared = ops.prepare(problem.base, c.metric, c.hints, run);
    GuardedLists lists(c.n, c.k);
    ops.self_nearest(*prepared, c.k, lists.out(), run);
    EXPECT_TRUE(same_lists(lists, want)) << share;
    symmetric += gpu::launches()["scan_products_both"] > before;
  }
  EXPECT_GT(symmetric, 0);
  EXPECT_LT(symmetric, 5);
}
}  // namespace
}  // namespace gigaknn
