// Every op x metric x dtype x instruction set against the float64 reference.
#include "ops/conformance.hpp"

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>

namespace gigaknn {
namespace {

using namespace test;

#ifdef GIGAKNN_SANITIZED  // ten times as slow
constexpr double work_share = 0.2;
constexpr int cases_apart = 3;  // of all cases a third, of many rows too
#else
constexpr double work_share = 1;
constexpr int cases_apart = 1;
#endif

std::string subject_name(const testing::TestParamInfo<Subject>& info) {
  return std::string(name_of(info.param.metric)) + "_" + std::string(name_of(info.param.dtype));
}

class Conformance : public testing::TestWithParam<Subject> {
 protected:
  /// Runs `check` on `count` cases of this subject.
  void sweep(std::int64_t count, double most_work, bool self,
             const std::function<void(const Case&, const Devices&)>& check) {
    CaseMaker maker(static_cast<std::uint64_t>(GetParam().metric) * 10 +
                    static_cast<std::uint64_t>(GetParam().dtype) +
                    static_cast<std::uint64_t>(count));
    for (std::int64_t index = 0; index * cases_apart < count; ++index)
      check(maker.make(GetParam(), index, most_work * work_share, self), instruction_sets());
  }
};
INSTANTIATE_TEST_SUITE_P(Every, Conformance, testing::ValuesIn(subjects()), subject_name);

TEST_P(Conformance, nearest_rows_equals_the_reference) {
  sweep(24, 1e7, false, check_nearest_rows);
}
TEST_P(Conformance, nearest_set_is_that_of_the_reference) {
  sweep(8, 3e6, false, check_nearest_set);
}
TEST_P(Conformance, nearest_one_equals_the_reference) {
  sweep(5, 3e6, false, check_nearest_one);
}
TEST_P(Conformance, self_nearest_equals_the_reference) {
  sweep(19, 5e6, true, check_self_nearest);
}
TEST_P(Conformance, first_self_leaves_out_only_the_query_itself) {
  sweep(5, 2e6, false, check_first_self);
}
TEST_P(Conformance, nearest_in_cells_equals_the_reference) {
  sweep(19, 3e6, false, check_nearest_in_cells);
}
TEST_P(Conformance, join_cells_equals_the_reference) {
  sweep(19, 3e6, false, check_join_cells);
}
TEST_P(Conformance, product_codes_are_searched_as_the_rows_they_stand_for) {
  if (GetParam().dtype != DType::f32) return;
  if (GetParam().metric == Metric::l2) sweep(27, 2e5, false, check_encode_products);
  if (GetParam().metric == Metric::l2 || GetParam().metric == Metric::euclidean || GetParam().metric == Metric::inner_product) {
    sweep(54, 3e6, false, check_nearest_in_codes);
  }
}
TEST_P(Conformance, products_equal_the_reference) {
  if (GetParam().metric != Metric::inner_product) return;
  if (GetParam().dtype == DType::f32 || GetParam().dtype == DType::i8) sweep(27, 1e6, false, check_products);
}
TEST_P(Conformance, nearest_among_equals_the_reference) {
  sweep(27, 3e7, false, check_nearest_among);
}
TEST_P(Conformance, within_radius_equals_the_reference) {
  sweep(6, 5e5, false, check_within_radius);
}
TEST_P(Conformance, pair_distances_equal_the_reference) {
  sweep(19, 3e7, false, check_pair_distances);
}

TEST_P(Conformance, assignment_equals_the_reference) {
  sweep(6, 3e5, false, [](Case c, const Devices& devices) {
    c.k = std::min<std::int64_t>(c.k, 40);
    check_assignment(c, devices);
  });
}
// Centroids enough for a filter on codes.
TEST_P(Conformance, assignment_to_many_centroids_equals_the_reference) {
  const auto subject = static_cast<int>(GetParam().metric) * 4 + static_cast<int>(GetParam().dtype);
  for (int kind = subject % 9; kind < kind_count; kind += 9) {
    Case c{.metric = GetParam().metric, .dtype = GetParam().dtype, .kind = static_cast<Kind>(kind)};
    c.n = 140;
    c.q = 40;
    c.d = 20 + kind;
    c.k = 530;
    c.threads = 2;
    c.strided = kind % 2 == 0;
    c.seed = static_cast<std::uint64_t>(kind);
    check_assignment(c);
  }
}

TEST_P(Conformance, sum_by_label_adds_in_the_order_of_its_contract) {
  sweep(5, 1e6, false, check_sum_by_label);
}

TEST(EncodeProducts, of_distances_that_round_alike_the_first_counts) { check_close_codewords(); }
TEST(NearestInCodes, of_rows_that_float32_cannot_tell_apart_those_are_found_that_are_nearest) { check_close_codes(); }
TEST(FarRows, are_answered_as_near_ones) {
  for (const DType dtype : {DType::f32, DType::u8}) check_far_rows(dtype, instruction_sets());
}
#ifndef GIGAKNN_SANITIZED
TEST(FarRows, have_their_numbers) {
  check_high_numbers(instruction_sets());
}
TEST(Selection, far_columns_have_their_numbers) {
  check_select_far_columns(instruction_sets());
}
#endif
TEST(Selection, selects_any_k) {
  check_select_any_k(instruction_sets());
}

TEST(SelfNearest, answers_any_k) {
  check_self_any_k(instruction_sets(), 1000);
#ifndef GIGAKNN_SANITIZED
  check_self_any_k({&ops_of("cpu")}, 5000);
#endif
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
  const int subject = static_cast<int>(GetParam().metric) + static_cast<int>(GetParam().dtype);
  for (int kind = subject % cases_apart; kind < kind_count; kind += cases_apart) {
    Case c{.metric = GetParam().metric, .dtype = GetParam().dtype, .kind = static_cast<Kind>(kind)};
    c.n = 400;
    c.q = 20;
    c.d = 48;
    c.k = 25;
    c.threads = 2;
    c.hints = PrepareHints{.k = 25, .queries = 1000000, .batch = 10000, .self = false};
    check_nearest_rows(c);
    check_nearest_in_cells(c);
    c.n = 150;
    c.hints.self = true;
    check_self_nearest(c);
  }
}

// Sizes around those of tiles and of what is compared at once.
TEST(FewRows, are_found_as_sets) {
  const struct {
    std::int64_t n, d, k;
  } sizes[] = {{63, 3, 20},    {64, 127, 1},  {65, 128, 64}, {127, 129, 126}, {128, 20, 127},
               {129, 256, 33}, {300, 40, 32}, {1025, 12, 7}, {4096, 8, 11},   {4097, 8, 11}};
  const std::int64_t queries[] = {1, 8, 33};
  for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product, Metric::cosine}) {
    for (int kind = 0; kind < kind_count; ++kind) {
      for (int s = (kind + static_cast<int>(metric)) % cases_apart; s < std::ssize(sizes); s += cases_apart) {
        Case c{.metric = metric, .dtype = DType::f32, .kind = static_cast<Kind>(kind), .n = sizes[s].n, .q = queries[(kind + s) % 3], .d = sizes[s].d, .k = sizes[s].k};
        c.threads = 2;
        c.strided = (kind + s) % 2 == 0;
        c.hints = PrepareHints{.k = 32, .queries = 1000, .batch = 1000, .self = false, .few = true};
        check_nearest_set(c);
      }
    }
  }
}

TEST(FewRows, are_found_about_the_nearest_first) {
  Case c{.metric = Metric::l2, .dtype = DType::f32, .kind = Kind::clustered, .n = 300, .q = 33, .d = 40, .k = 32};
  c.hints = PrepareHints{.k = 32, .queries = 1000, .batch = 1000, .self = false, .few = true};
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.queries, problem.base, c.metric, c.k);
  for (const Ops* ops : instruction_sets()) {
    std::vector<RowId> ids(want.ids.size());
    ops->nearest_set(*ops->prepare(problem.base, c.metric, c.hints, problem.run), problem.queries, c.k, ids.data(), problem.run);
    std::int64_t elsewhere = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) elsewhere += ids[i] != want.ids[i];
    EXPECT_LT(elsewhere, std::ssize(ids) / 100) << ops->isa();
  }
}

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
  const bool may_be_fewer = n / cases_apart >= 4 * k && n < 65536;
  Case c{.metric = metric, .dtype = dtype, .kind = kind, .n = may_be_fewer ? n / cases_apart : n, .q = q, .d = d, .k = k};
  c.threads = 2;
  c.hints = PrepareHints{.k = k, .queries = self ? c.n : 1000000, .batch = 10000, .self = self};
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
        large(l2, f16, nonfinite, 8192, 64, 100, 10), large(l2, bf16, decaying, 8192, 64, 256, 10),
        large(l2, bf16, huger, 5000, 64, 64, 10),
        large(euclidean, f32, low_rank, 10000, 64, 100, 10),
        large(euclidean, u8, clustered, 10000, 64, 128, 100),
        large(cosine, f32, low_rank, 12000, 64, 100, 10),
        large(cosine, f16, gaussian, 12000, 64, 100, 10), large(cosine, bf16, gaussian, 12000, 64, 100, 10),
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
        large(l1, bf16, tiny_values, 10000, 64, 64, 10),
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

}  // namespace
}  // namespace gigaknn
