// Cases for the ops, and their comparison with the float64 reference: ids and distance bits alike.
//
//   Case (shape, kind of vectors, threads, hints) --Problem--> base, queries --reference--> expected lists
//                                                                   \--each device--> lists, compared
//
// To add a metric or a dtype: one line in `subjects`. To add an awkward input: one Kind in test_vectors.hpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <vector>

#include "core/random.hpp"
#include "ops/ops.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn::test {

struct Subject {
  Metric metric;
  DType dtype;
};
/// Every metric with every dtype it has a meaning for.
const std::vector<Subject>& subjects();

using Devices = std::vector<const Ops*>;
/// The instruction sets of the CPU device that this machine has; "cpu" itself where it names none.
const Devices& instruction_sets();

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
  std::int64_t most_cell_rows = 150;
};

std::ostream& operator<<(std::ostream& out, const Case& c);

/// The vectors of a case.
struct Problem {
  StridedRows base;
  StridedRows queries;
  RunOptions run;

  explicit Problem(const Case& c)
      : base(c.n, c.d, c.dtype, c.strided ? 3 : 0), queries(c.q, c.d, c.dtype, c.strided ? 1 : 0) {
    VectorMaker(c.kind, c.n, c.d, c.dtype, c.metric, c.seed).fill(base, queries);
    run.threads = c.threads;
    if (!c.hints.seven_bits || c.dtype != DType::u8 || on_bits(c.metric)) return;
    for (StridedRows* rows : {&base, &queries}) {
      for (std::int64_t i = 0; i < rows->ref().rows * c.d; ++i) {
        rows->set(i / c.d, i % c.d, std::min(rows->ref().row<std::uint8_t>(i / c.d)[i % c.d], most_seven_bits));
      }
    }
  }
};

/// Walks the tables by a hash of its seed: over all subjects every pair of values meets.
class CaseMaker {
 public:
  explicit CaseMaker(std::uint64_t seed) : seed_(seed) {}

  /// Case `index`; each d and each kind comes round, the rest is drawn. `most_work` bounds n * q *
  /// d.
  Case make(Subject subject, std::int64_t index, double most_work, bool self = false);

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

/// Whether this run has the case of a test that takes long on the emulated GPU: of GIGAKNN_SHARE 1/3 every third, from the second on; all
/// where it is not set. The stages of a short check (./check) have a share each.
bool is_of_share(std::int64_t number);

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

testing::AssertionResult same_lists(const GuardedLists& got, const Neighbors& want);
testing::AssertionResult same_lists(const RadiusNeighbors& got, const RadiusNeighbors& want);

GuardedLists search(const Ops& ops, const Problem& problem, const Case& c);
GuardedLists search_self(const Ops& ops, const Problem& problem, const Case& c);

/// Each runs one op on the case on every device and expects what the reference says.
void check_nearest_rows(const Case& c, const Devices& devices = instruction_sets());
void check_nearest_set(const Case& c, const Devices& devices = instruction_sets());
/// For one neighbour, whatever c.k is, prepared for as many queries as c.hints say.
void check_nearest_one(const Case& c, const Devices& devices = instruction_sets());
void check_self_nearest(const Case& c, const Devices& devices = instruction_sets());
/// For k from 1 to 5,000: of sets that are smaller than k, and, for k up to `most_k`, of some that are larger.
void check_self_any_k(const Devices& devices, std::int64_t most_k);
void check_first_self(const Case& c, const Devices& devices = instruction_sets());
void check_within_radius(const Case& c, const Devices& devices = instruction_sets());
void check_pair_distances(const Case& c, const Devices& devices = instruction_sets());
/// The base in cells of several sizes, some empty; each query looks into some, the base into its own and others.
void check_nearest_in_cells(const Case& c, const Devices& devices = instruction_sets());
void check_join_cells(const Case& c, const Devices& devices = instruction_sets());
/// Rows of f32 in drawn product codes, some parts' codewords alike; in cells, with names and a mask or without.
void check_encode_products(const Case& c, const Devices& devices = instruction_sets());
/// Codewords in pairs that differ by the last bit of a number: distances to both often round alike while estimates of them differ, either
/// way. Some are equal.
void check_close_codewords(const Devices& devices = instruction_sets());
void check_nearest_in_codes(const Case& c, const Devices& devices = instruction_sets());
/// Codes of rows that lie far from the origin and so close to each other that what float32 rounds away decides who is nearest.
/// `shared`: of the shapes only those of this run's share.
void check_close_codes(const Devices& devices = instruction_sets(), bool shared = false);
void check_products(const Case& c, const Devices& devices = instruction_sets());
/// Of a few rows each.
void check_nearest_among(const Case& c, const Devices& devices = instruction_sets());
/// The c.k smallest of each element of the base's rows, and of values that tie, are NaN or infinite.
void check_select_k(const Case& c, const Devices& devices = instruction_sets());
/// For k from 1 to 5,000, of rows shorter and longer than that.
void check_select_any_k(const Devices& devices);
/// Of a row whose smallest values have columns that float32 does not hold, and of rows gigabytes apart.
void check_select_far_columns(const Devices& devices);
/// Ops answer of rows gigabytes apart as of the same rows side by side.
void check_far_rows(DType dtype, const Devices& devices);
/// Neighbours of so high numbers that float32 does not hold them.
void check_high_numbers(const Devices& devices);
/// The base assigned to c.k centroids, of its own type and f32, in rounds between which many, some or none move.
void check_assignment(const Case& c, const Devices& devices = instruction_sets());
/// The rows of the base with c.k labels, drawn or all the same, with weights and without.
void check_sum_by_label(const Case& c, const Devices& devices = instruction_sets());
struct GrowthShape {
  std::int64_t samples;
  bool split;  ///< joins across a split alone
};
/// Three rounds of NN-Descent, with parameters drawn by c.seed, but for those of `shape`; c.k bounds the lists.
void check_growth(const Case& c, const Devices& devices = instruction_sets(), std::optional<GrowthShape> shape = {});

}  // namespace gigaknn::test
