// Every op x metric x dtype x instruction set against the float64 reference, ids and distance bits
// alike.
//
//   Case (shape, kind of vectors, threads, hints) --Problem--> base, queries --reference-->
//   expected lists
//                                                                   \--each of devices()--> lists,
//                                                                   compared
//
// To add a metric or a dtype: one line in `subjects`. To add an awkward input: one Kind in
// test_vectors.hpp. GIGAKNN_TEST_SEED and GIGAKNN_TEST_ROUNDS steer the randomised test; a failure
// prints what repeats it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gigaknn/error.hpp>

#include "core/random.hpp"
#include "core/require.hpp"
#include "ops/ops.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::Kind;
using test::StridedRows;
using RunOptions = Run;  // testing::Test has a Run of its own

constexpr float infinity = std::numeric_limits<float>::infinity();

// ---- what is tested
// -------------------------------------------------------------------------------------

struct Subject {
  Metric metric;
  DType dtype;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> list = [] {
    std::vector<Subject> all;
    for (const Metric metric : all_metrics()) {
      if (on_bits(metric)) {
        all.push_back({metric, DType::u8});
        continue;
      }
      for (const DType dtype : {DType::f32, DType::f16, DType::u8, DType::i8})
        all.push_back({metric, dtype});
    }
    return all;
  }();
  return list;
}

/// The instruction sets of the CPU device that this machine has; "cpu" itself where it names none.
const std::vector<const Ops*>& instruction_sets() {
  static const std::vector<const Ops*> list = [] {
    std::vector<const Ops*> found;
    for (const char* name : {"cpu:avx512vnni", "cpu:avx2", "cpu:generic"}) {
      try {
        found.push_back(&ops_of(name));
      } catch (const Error& error) {
        if (error.fault() != Fault::device) throw;
      }
    }
    if (found.empty()) found.push_back(&ops_of("cpu"));
    return found;
  }();
  return list;
}

struct Case {
  Metric metric = Metric::l2;
  DType dtype = DType::f32;
  Kind kind = Kind::gaussian;
  std::int64_t n = 1;
  std::int64_t q = 1;
  std::int64_t d = 1;
  std::int64_t k = 1;
  std::uint64_t seed = 1;
  int threads = 1;
  PrepareHints hints{};
  bool strided = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.metric) << ' ' << name_of(c.dtype) << ' ' << name_of(c.kind)
             << " n=" << c.n << " q=" << c.q << " d=" << c.d << " k=" << c.k << " seed=" << c.seed
             << " threads=" << c.threads << " hints{k=" << c.hints.k
             << " queries=" << c.hints.queries << " batch=" << c.hints.batch
             << " self=" << c.hints.self << '}' << (c.strided ? " strided" : "");
}

/// The vectors of a case.
struct Problem {
  StridedRows base;
  StridedRows queries;
  Run run;

  explicit Problem(const Case& c)
      : base(c.n, c.d, c.dtype, c.strided ? 3 : 0), queries(c.q, c.d, c.dtype, c.strided ? 1 : 0) {
    test::VectorMaker(c.kind, c.n, c.d, c.dtype, c.metric, c.seed).fill(base, queries);
    run.threads = c.threads;
  }
};

// ---- choosing cases
// -------------------------------------------------------------------------------------

constexpr std::int64_t sizes_n[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 2999};
constexpr std::int64_t sizes_q[] = {1, 2, 5, 6, 7, 16, 64, 300};
constexpr std::int64_t sizes_d[] = {1,  2,  3,  4,  7,  8,   16,  17,  31,
                                    32, 33, 63, 64, 65, 100, 128, 200, 784};

/// Walks the tables by a hash of its seed: over all subjects every pair of values meets.
class CaseMaker {
 public:
  explicit CaseMaker(std::uint64_t seed) : seed_(seed) {}

  /// Case `index`; each d and each kind comes round, the rest is drawn. `most_work` bounds n * q *
  /// d.
  Case make(Subject subject, std::int64_t index, double most_work, bool self = false) {
    const std::int64_t subject_number =
        static_cast<std::int64_t>(subject.metric) * 4 + static_cast<std::int64_t>(subject.dtype);
    Case c;
    c.metric = subject.metric;
    c.dtype = subject.dtype;
    c.kind = static_cast<Kind>((index * 5 + subject_number * 7) % test::kind_count);
    c.d = sizes_d[(index + subject_number) % std::ssize(sizes_d)];
    c.n = any(sizes_n);
    c.q = self ? 1 : any(sizes_q);
    const auto work = [&] {
      return static_cast<double>(c.n) * static_cast<double>((self ? c.n : c.q) * c.d);
    };
    while (!self && work() > most_work && c.q > 7) c.q = c.q * 2 / 3;
    while (work() > most_work && c.n > 17) c.n = c.n * 2 / 3;
    const std::int64_t sizes_k[] = {1, 2, 10, c.n - 1, c.n, c.n + 1, 100, 1000};
    c.k = std::max<std::int64_t>(1, any(sizes_k));
    c.seed = draw(1000000);
    c.threads = any({1, 2, 5});
    c.hints.queries = any<std::int64_t>({1, 100, 10000, 1000000});
    c.hints.batch = std::min<std::int64_t>(c.hints.queries, any<std::int64_t>({1, 16, 10000}));
    c.hints.k = any<std::int64_t>({1, 10, 1000});
    c.hints.self = draw(2) == 0;
    c.strided = draw(4) == 0;
    return c;
  }

  std::uint64_t draw(std::uint64_t bound) { return random_below(bound, seed_, 77, counter_++); }

 private:
  template <class T>
  T any(std::initializer_list<T> values) {
    return values.begin()[draw(values.size())];
  }
  template <class T, std::size_t size>
  T any(const T (&values)[size]) {
    return values[draw(size)];
  }

  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

// ---- running and comparing
// ------------------------------------------------------------------------------

/// Lists filled with what no op returns, and with a guard behind them.
struct GuardedLists {
  static constexpr std::int64_t guard = 8;
  Neighbors lists;
  std::int64_t entries;

  GuardedLists(std::int64_t rows, std::int64_t k) : lists(rows, k), entries(rows * k) {
    lists.ids.assign(static_cast<std::size_t>(entries + guard), RowId{-77});
    lists.distances.assign(static_cast<std::size_t>(entries + guard), -77.0f);
  }
  NeighborsOut out() { return NeighborsOut(lists); }
  bool guard_stands() const {
    for (std::int64_t i = entries; i < entries + guard; ++i) {
      if (lists.ids[i] != RowId{-77} || lists.distances[i] != -77.0f) return false;
    }
    return true;
  }
};

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// Compares ids and distance bits; reports the first difference and how many there are.
testing::AssertionResult same_entries(const std::vector<RowId>& ids,
                                      const std::vector<float>& distances,
                                      const std::vector<RowId>& true_ids,
                                      const std::vector<float>& true_distances, std::int64_t k) {
  std::int64_t different = 0;
  std::ostringstream first;
  first.precision(9);
  for (std::size_t i = 0; i < true_ids.size(); ++i) {
    if (ids[i] == true_ids[i] && bits_of(distances[i]) == bits_of(true_distances[i])) continue;
    if (different++ > 0) continue;
    first << "row " << static_cast<std::int64_t>(i) / k << " place "
          << static_cast<std::int64_t>(i) % k << ": got id " << value_of(ids[i]) << " at "
          << distances[i] << " (0x" << std::hex << bits_of(distances[i]) << std::dec
          << "), want id " << value_of(true_ids[i]) << " at " << true_distances[i] << " (0x"
          << std::hex << bits_of(true_distances[i]) << ')' << std::dec;
  }
  if (different == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << different << " of " << true_ids.size() << " entries differ; " << first.str();
}

testing::AssertionResult same_lists(const GuardedLists& got, const Neighbors& want) {
  if (!got.guard_stands()) return testing::AssertionFailure() << "wrote beyond its lists";
  return same_entries(got.lists.ids, got.lists.distances, want.ids, want.distances, want.k);
}

testing::AssertionResult same_lists(const RadiusNeighbors& got, const RadiusNeighbors& want) {
  if (got.offsets != want.offsets || got.ids.size() != want.ids.size() ||
      got.distances.size() != want.distances.size()) {
    std::size_t i = 0;
    while (i < got.offsets.size() && i < want.offsets.size() && got.offsets[i] == want.offsets[i])
      ++i;
    return testing::AssertionFailure() << "offsets differ at " << i << ": " << got.ids.size()
                                       << " entries, want " << want.ids.size();
  }
  return same_entries(got.ids, got.distances, want.ids, want.distances,
                      std::max<std::int64_t>(1, std::ssize(want.ids)));
}

GuardedLists search(const Ops& ops, const Problem& problem, const Case& c) {
  const auto prepared = ops.prepare(problem.base, c.metric, c.hints, problem.run);
  GuardedLists lists(c.q, c.k);
  ops.nearest_rows(*prepared, problem.queries, c.k, lists.out(), problem.run);
  return lists;
}

GuardedLists search_self(const Ops& ops, const Problem& problem, const Case& c) {
  const auto prepared = ops.prepare(problem.base, c.metric, c.hints, problem.run);
  GuardedLists lists(c.n, c.k);
  ops.self_nearest(*prepared, c.k, lists.out(), problem.run);
  return lists;
}

void check_nearest_rows(const Case& c) {
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.queries, problem.base, c.metric, c.k);
  for (const Ops* ops : instruction_sets()) {
    EXPECT_TRUE(same_lists(search(*ops, problem, c), want))
        << "nearest_rows on " << ops->isa() << ": " << c;
  }
}

void check_self_nearest(const Case& c) {
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.base, problem.base, c.metric, c.k, 0);
  for (const Ops* ops : instruction_sets()) {
    EXPECT_TRUE(same_lists(search_self(*ops, problem, c), want))
        << "self_nearest on " << ops->isa() << ": " << c;
  }
}

void check_first_self(const Case& c) {
  const Problem problem(c);
  const std::int64_t first = c.n / 3;
  const MatrixRef part = problem.base.ref().slice(first, std::min(c.n, first + c.q));
  const Neighbors want = reference::nearest_rows(part, problem.base, c.metric, c.k, first);
  for (const Ops* ops : instruction_sets()) {
    const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
    GuardedLists lists(part.rows, c.k);
    ops->nearest_rows(*prepared, part, c.k, lists.out(), problem.run, first);
    EXPECT_TRUE(same_lists(lists, want))
        << "first_self=" << first << " on " << ops->isa() << ": " << c;
  }
}

void check_within_radius(const Case& c) {
  const Problem problem(c);
  // The exact value of some entry stands on the boundary; one float to either side decides it.
  const Neighbors some =
      reference::nearest_rows(problem.queries, problem.base, c.metric, std::min(c.k, c.n));
  const float edge = some.distances[some.distances.size() / 2];
  for (const float radius : {edge, std::nextafter(edge, -infinity), std::nextafter(edge, infinity),
                             0.0f, -1.0f, infinity, -infinity}) {
    const RadiusNeighbors want =
        reference::within_radius(problem.queries, problem.base, c.metric, radius);
    for (const Ops* ops : instruction_sets()) {
      const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
      EXPECT_TRUE(
          same_lists(ops->within_radius(*prepared, problem.queries, radius, problem.run), want))
          << "within_radius " << radius << " on " << ops->isa() << ": " << c;
    }
  }
}

void check_pair_distances(const Case& c) {
  const Problem problem(c);
  const reference::Rows queries(problem.queries, c.metric);
  const reference::Rows base(problem.base, c.metric);
  std::vector<RowId> ids;
  std::vector<float> want;
  for (std::int64_t i = 0; i < c.q; ++i) {
    const bool none = i % 5 == 4;
    const std::int64_t id =
        static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(c.n), c.seed, 5, i));
    ids.push_back(none ? no_row : RowId{id});
    want.push_back(none ? reference::farthest(c.metric)
                        : reference::distance(queries, i, base, id, c.metric));
  }
  for (const Ops* ops : instruction_sets()) {
    std::vector<float> got(static_cast<std::size_t>(c.q), -77.0f);
    ops->pair_distances(problem.queries, problem.base, c.metric, ids.data(), got.data(),
                        problem.run);
    EXPECT_TRUE(same_entries(ids, got, ids, want, 1))
        << "pair_distances on " << ops->isa() << ": " << c;
  }
}

// ---- the reference itself
// -------------------------------------------------------------------------------

float reference_distance(Metric metric, DType dtype, std::vector<float> x, std::vector<float> y) {
  StridedRows rows(2, std::ssize(x), dtype, 0);
  for (std::int64_t col = 0; col < std::ssize(x); ++col) {
    rows.set(0, col, x[col]);
    rows.set(1, col, y[col]);
  }
  const reference::Rows wide(rows, metric);
  return reference::distance(wide, 0, wide, 1, metric);
}

TEST(Reference, distances_worked_out_by_hand) {
  const std::vector<float> x = {4, 0, 9};
  const std::vector<float> y = {1, 0, 16};
  for (const DType dtype : {DType::f32, DType::f16, DType::u8, DType::i8}) {
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

// ---- every metric and dtype
// -----------------------------------------------------------------------------

std::string subject_name(const testing::TestParamInfo<Subject>& info) {
  return std::string(name_of(info.param.metric)) + "_" + std::string(name_of(info.param.dtype));
}

class Conformance : public testing::TestWithParam<Subject> {
 protected:
  /// Runs `check` on `count` cases of this subject.
  void sweep(std::int64_t count, double most_work, bool self,
             const std::function<void(const Case&)>& check) {
    CaseMaker maker(static_cast<std::uint64_t>(GetParam().metric) * 10 +
                    static_cast<std::uint64_t>(GetParam().dtype) +
                    static_cast<std::uint64_t>(count));
    for (std::int64_t index = 0; index < count; ++index)
      check(maker.make(GetParam(), index, most_work, self));
  }
};
INSTANTIATE_TEST_SUITE_P(Every, Conformance, testing::ValuesIn(subjects()), subject_name);

TEST_P(Conformance, nearest_rows_equals_the_reference) {
  sweep(24, 1e7, false, check_nearest_rows);
}
TEST_P(Conformance, self_nearest_equals_the_reference) {
  sweep(19, 5e6, true, check_self_nearest);
}
TEST_P(Conformance, first_self_leaves_out_only_the_query_itself) {
  sweep(5, 2e6, false, check_first_self);
}
TEST_P(Conformance, within_radius_equals_the_reference) {
  sweep(6, 5e5, false, check_within_radius);
}
TEST_P(Conformance, pair_distances_equal_the_reference) {
  sweep(19, 3e7, false, check_pair_distances);
}

TEST_P(Conformance, threads_and_hints_do_not_change_a_bit) {
  Case c = CaseMaker(9).make(GetParam(), 3, 1e6);
  c.kind = Kind::clustered;
  c.n = 500;
  c.q = 33;
  c.d = 40;
  c.k = 12;
  const Problem made(c);
  const Neighbors want = reference::nearest_rows(made.queries, made.base, c.metric, c.k);
  const Neighbors want_self = reference::nearest_rows(made.base, made.base, c.metric, c.k, 0);
  const struct {
    int threads;
    std::int64_t queries;
    std::int64_t k;
    bool self;
  } ways[] = {{1, 1, 1, false},      {2, 100, 1000, true}, {5, 1000000, 10, false},
              {1, 1000000, 1, true}, {5, 1, 1000, true},   {2, 1000000, 1000, false}};
  for (const auto& way : ways) {
    c.threads = way.threads;
    c.hints = {.k = way.k, .queries = way.queries, .batch = way.queries, .self = way.self};
    const Problem problem(c);
    for (const Ops* ops : instruction_sets()) {
      EXPECT_TRUE(same_lists(search(*ops, problem, c), want)) << ops->isa() << ": " << c;
      EXPECT_TRUE(same_lists(search_self(*ops, problem, c), want_self)) << ops->isa() << ": " << c;
    }
  }
}

TEST_P(Conformance, every_kind_of_vectors_is_answered) {
  for (int kind = 0; kind < test::kind_count; ++kind) {
    Case c{.metric = GetParam().metric, .dtype = GetParam().dtype, .kind = static_cast<Kind>(kind)};
    c.n = 400;
    c.q = 20;
    c.d = 48;
    c.k = 25;
    c.threads = 2;
    c.hints = PrepareHints{.k = 25, .queries = 1000000, .batch = 10000, .self = false};
    check_nearest_rows(c);
    c.n = 150;
    c.hints.self = true;
    check_self_nearest(c);
  }
}

// ---- sizes at which filters, tiles and samples come in
// ------------------------------------------------------

class Large : public testing::TestWithParam<Case> {};
TEST_P(Large, nearest_rows_equals_the_reference) {
  check_nearest_rows(GetParam());
}

class LargeSelf : public testing::TestWithParam<Case> {};
TEST_P(LargeSelf, self_nearest_equals_the_reference) {
  check_self_nearest(GetParam());
}

Case large(Metric metric, DType dtype, Kind kind, std::int64_t n, std::int64_t q, std::int64_t d,
           std::int64_t k, bool self = false) {
  Case c{.metric = metric, .dtype = dtype, .kind = kind, .n = n, .q = q, .d = d, .k = k};
  c.threads = 2;
  c.hints = PrepareHints{.k = k, .queries = self ? n : 1000000, .batch = 10000, .self = self};
  return c;
}

std::string large_name(const testing::TestParamInfo<Case>& info) {
  std::ostringstream name;
  const Case& c = info.param;
  name << name_of(c.metric) << '_' << name_of(c.dtype) << '_' << name_of(c.kind) << '_' << c.n
       << 'x' << c.d << "_k" << c.k;
  return name.str();
}

using enum Metric;
using enum DType;
using enum Kind;

INSTANTIATE_TEST_SUITE_P(
    Sizes, Large,
    testing::Values(
        large(l2, f32, low_rank, 12000, 70, 200, 10), large(l2, f32, decaying, 12000, 70, 128, 10),
        large(l2, f32, gaussian, 12000, 70, 64, 10), large(l2, f32, clustered, 3000, 300, 784, 100),
        large(l2, f32, low_rank, 3000, 64, 200, 1000),
        large(l2, f32, far_cluster, 10000, 64, 128, 10),
        large(l2, f32, outliers, 10000, 64, 64, 10), large(l2, f32, nonfinite, 10000, 64, 100, 10),
        large(l2, f32, approaching, 15000, 64, 32, 100),
        large(l2, f32, near_ties, 10000, 64, 64, 10),
        large(l2, f32, mixed_norms, 10000, 64, 64, 10), large(l2, f32, huge, 10000, 64, 64, 10),
        large(l2, f32, huger, 5000, 64, 64, 10), large(l2, f32, tiny_values, 5000, 64, 64, 10),
        large(l2, f32, duplicates, 10000, 64, 64, 100),
        large(l2, f32, small_integers, 20000, 64, 16, 1000),
        large(l2, f32, gaussian, 30000, 300, 3, 1), large(l2, f32, low_rank, 20000, 1, 200, 10),
        large(l2, u8, clustered, 20000, 100, 128, 10), large(l2, u8, low_rank, 4097, 257, 784, 10),
        large(l2, u8, extremes, 5000, 64, 784, 10),
        large(l2, u8, small_integers, 20000, 64, 16, 1000),
        large(l2, u8, approaching, 20000, 64, 64, 10), large(l2, i8, gaussian, 12000, 64, 100, 10),
        large(l2, i8, extremes, 5000, 64, 200, 10), large(l2, f16, decaying, 8192, 64, 256, 10),
        large(l2, f16, nonfinite, 8192, 64, 100, 10),
        large(euclidean, f32, low_rank, 10000, 64, 100, 10),
        large(euclidean, u8, clustered, 10000, 64, 128, 100),
        large(cosine, f32, low_rank, 12000, 64, 100, 10),
        large(cosine, f16, gaussian, 12000, 64, 100, 10),
        large(cosine, f32, zero_rows, 10000, 64, 64, 10),
        large(cosine, f32, mixed_norms, 10000, 64, 64, 10),
        large(cosine, u8, clustered, 10000, 64, 128, 10),
        large(cosine, i8, zero_rows, 10000, 64, 64, 10),
        large(cosine, f32, near_ties, 10000, 64, 64, 10),
        large(cosine, f32, nonfinite, 10000, 64, 64, 10),
        large(inner_product, f32, mixed_norms, 12000, 64, 64, 10),
        large(inner_product, f32, low_rank, 12000, 64, 200, 10),
        large(inner_product, u8, clustered, 10000, 64, 128, 10),
        large(inner_product, i8, extremes, 10000, 64, 128, 10),
        large(inner_product, f16, outliers, 10000, 64, 64, 10),
        large(inner_product, f32, nonfinite, 10000, 64, 64, 10),
        large(l1, f32, gaussian, 30000, 100, 16, 1), large(l1, u8, clustered, 20000, 64, 54, 10),
        large(l1, i8, extremes, 10000, 64, 64, 10), large(l1, f16, mixed_norms, 10000, 64, 64, 10),
        large(l1, f32, far_cluster, 10000, 64, 64, 10),
        large(l1, f32, nonfinite, 10000, 64, 64, 10),
        large(linf, f32, clustered, 10000, 64, 64, 10),
        large(chi2, f32, gaussian, 6000, 64, 64, 10), large(chi2, u8, sparse, 6000, 64, 64, 10),
        large(hellinger, f32, sparse, 6000, 64, 64, 10),
        // Sums of squares beyond 2^31, and rows beyond 2^16.
        large(l2, u8, extremes, 100, 7, 70000, 10), large(l2, i8, extremes, 100, 7, 70000, 10),
        large(inner_product, u8, extremes, 100, 7, 70000, 10),
        large(cosine, i8, extremes, 100, 7, 70000, 10), large(l2, f32, low_rank, 300, 16, 5000, 10),
        large(l2, f32, small_integers, 70000, 20, 8, 100),
        large(l2, u8, gaussian, 70000, 20, 16, 10), large(l1, f32, gaussian, 70000, 20, 8, 10),
        large(hamming, u8, clustered, 20000, 64, 32, 100),
        large(hamming, u8, gaussian, 20000, 64, 17, 10),
        large(jaccard, u8, sparse, 20000, 64, 16, 10)),
    large_name);

INSTANTIATE_TEST_SUITE_P(Sizes, LargeSelf,
                         testing::Values(large(l2, f32, low_rank, 2500, 1, 200, 10, true),
                                         large(l2, f32, gaussian, 3000, 1, 32, 15, true),
                                         large(l2, f32, nonfinite, 2500, 1, 64, 10, true),
                                         large(l2, f32, approaching, 2500, 1, 32, 100, true),
                                         large(l2, f32, outliers, 2500, 1, 64, 10, true),
                                         large(l2, u8, clustered, 3000, 1, 128, 10, true),
                                         large(l2, u8, duplicates, 2500, 1, 16, 1000, true),
                                         large(l2, i8, gaussian, 2500, 1, 64, 10, true),
                                         large(l2, f16, low_rank, 2500, 1, 100, 10, true),
                                         large(euclidean, u8, low_rank, 2500, 1, 100, 10, true),
                                         large(cosine, f16, gaussian, 2500, 1, 100, 10, true),
                                         large(cosine, f32, zero_rows, 2500, 1, 64, 10, true),
                                         large(inner_product, f32, mixed_norms, 2500, 1, 64, 10,
                                               true),
                                         large(l1, f32, gaussian, 3000, 1, 16, 10, true),
                                         large(l1, u8, clustered, 2500, 1, 54, 10, true),
                                         large(hamming, u8, clustered, 1500, 1, 32, 10, true)),
                         large_name);

// ---- devices
// --------------------------------------------------------------------------------------------

class InstructionSet : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, InstructionSet, testing::Values("avx512vnni", "avx2", "generic"),
                         [](const auto& info) { return info.param; });

TEST_P(InstructionSet, opens_and_answers_like_the_reference) {
  const Ops* ops = nullptr;
  try {
    ops = &ops_of("cpu:" + GetParam());
  } catch (const Error& error) {
    ASSERT_EQ(error.fault(), Fault::device) << error.what();
    ASSERT_NE(GetParam(), "generic") << "always there: " << error.what();
    GTEST_SKIP() << GetParam() << " is not on this machine: " << error.what();
  }
  EXPECT_EQ(ops->isa(), GetParam());
  EXPECT_EQ(ops->name(), "cpu");
  Case c{.metric = l2, .dtype = f32, .kind = clustered, .n = 300, .q = 17, .d = 20, .k = 5};
  const Problem problem(c);
  EXPECT_TRUE(same_lists(search(*ops, problem, c),
                         reference::nearest_rows(problem.queries, problem.base, l2, 5)));
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

// ---- errors
// ---------------------------------------------------------------------------------------------

/// Expects an Error with this fault whose message shows each of `parts`.
void expect_error(Fault fault, const std::vector<std::string>& parts,
                  const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one that shows " << parts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' in: " << error.what();
    }
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
    ops.pair_distances(wide, problem.base, l2, ids.data(), out.data(), problem.run);
  });
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
    ops.pair_distances(half, problem.base, l2, ids.data(), out.data(), problem.run);
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

// ---- cancelling
// -----------------------------------------------------------------------------------------

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
      ops->pair_distances(problem.queries, problem.base, l2, ids.data(), out.data(), run);
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

// ---- random differential test
// ---------------------------------------------------------------------------

std::uint64_t from_environment(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

TEST(Random, cases_equal_the_reference) {
  const std::uint64_t seed = from_environment("GIGAKNN_TEST_SEED", 20240601);
  const std::uint64_t rounds = from_environment("GIGAKNN_TEST_ROUNDS", 150);
  for (std::uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(
        join_text("repeat with GIGAKNN_TEST_SEED=", seed + round, " GIGAKNN_TEST_ROUNDS=1"));
    CaseMaker maker(seed + round);
    const Subject subject = subjects()[maker.draw(subjects().size())];
    Case c = maker.make(subject, static_cast<std::int64_t>(maker.draw(10000)), 4e6);
    c.kind = static_cast<Kind>(maker.draw(test::kind_count));
    c.n = 1 + static_cast<std::int64_t>(maker.draw(static_cast<std::uint64_t>(c.n)));
    c.d = 1 + static_cast<std::int64_t>(maker.draw(static_cast<std::uint64_t>(c.d)));
    c.k = 1 + static_cast<std::int64_t>(maker.draw(static_cast<std::uint64_t>(c.n + 1)));
    switch (maker.draw(5)) {
      case 0:
        c.n = std::min<std::int64_t>(c.n, 700);
        check_self_nearest(c);
        break;
      case 1:
        check_first_self(c);
        break;
      case 2:
        c.n = std::min<std::int64_t>(c.n, 300);
        check_within_radius(c);
        break;
      case 3:
        check_pair_distances(c);
        break;
      default:
        check_nearest_rows(c);
    }
  }
}

}  // namespace
}  // namespace gigaknn
