// What data_doubts says of rows made to deserve it, and that it says nothing of others.
#include <gtest/gtest.h>

#include "core/expect_error.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "graph/graph_checks.hpp"

namespace gigaknn {
namespace {

using test::Base;
using test::expect_error;
using test::Kind;

constexpr std::int64_t n = 600;

std::vector<std::string> doubts_of(MatrixRef base, Metric metric = Metric::l2, std::int64_t k = 5, double recall = 1) {
  GraphParams params;
  params.k = k;
  params.metric = metric;
  params.recall = recall;
  params.method = recall < 1 ? "ivf" : "auto";
  return build_graph(base, params).doubts;
}

// `doubts` are these, each named by what it must say.
void expect_doubts(const std::vector<std::string>& doubts, const std::vector<std::string>& wanted, const std::string& what) {
  ASSERT_EQ(doubts.size(), wanted.size()) << what << (doubts.empty() ? "" : ": " + doubts.front());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NE(doubts[i].find(wanted[i]), std::string::npos) << what << ": " << doubts[i];
}

Matrix with_copies(const Base& base, std::int64_t rows, std::int64_t copies) {
  Matrix changed(n, base.rows.ref().cols, base.rows.ref().dtype);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = i < rows * copies ? i / copies : i;
    std::copy_n(base.rows.ref().row_bytes(from), changed.ref().stride_bytes, changed.row<std::byte>(i));
  }
  return changed;
}

TEST(DataDoubts, are_none_of_usual_rows) {
  for (const Kind kind : {Kind::gaussian, Kind::clustered, Kind::low_rank}) {
    for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::cosine, Metric::l1, Metric::linf}) {
      const Base base(kind, n, 12, DType::f32, metric);
      expect_doubts(doubts_of(base.rows, metric), {}, join_text(test::name_of(kind), ' ', name_of(metric)));
    }
  }
}

TEST(DataDoubts, name_lists_that_copies_fill) {
  const Base base(Kind::gaussian, n, 12);
  expect_doubts(doubts_of(with_copies(base, 10, 5)), {}, "four copies leave room for another row");
  expect_doubts(doubts_of(with_copies(base, 10, 6)), {"copies: all 5 neighbours of 10 % of the rows"}, "five copies of each");
  expect_doubts(doubts_of(with_copies(base, 10, 6), Metric::cosine, 5, 0.9), {"of 10 % of"}, "approximately, by cosine");
  const Base equal(Kind::all_equal, n, 12);
  expect_doubts(doubts_of(equal.rows), {"of 100 % of the rows"}, "all equal");
}

TEST(DataDoubts, name_constant_rows) {
  Base base(Kind::gaussian, n, 12, DType::f32);
  for (const std::int64_t row : {31, 17, 400}) {
    for (std::int64_t j = 0; j < 12; ++j) base.rows.set(row, j, static_cast<double>(row));
  }
  expect_doubts(doubts_of(base.rows), {"constant rows: 0.5 % have one value in every dimension, among them row 17"}, "three rows");
  Matrix line(n, 1, DType::f32);  // of one dimension no row is anything else
  for (std::int64_t i = 0; i < n; ++i) *line.row<float>(i) = static_cast<float>(i);
  expect_doubts(doubts_of(line), {}, "one dimension");
}

TEST(DataDoubts, name_a_metric_by_which_many_are_as_near) {
  Matrix few_values(n, 6, DType::u8);
  Matrix one_bit(n, 8, DType::u8);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 1; j < 6; ++j) few_values.row<std::uint8_t>(i)[j] = static_cast<std::uint8_t>(random_below(2, 7, 1, i * 6 + j));
    few_values.row<std::uint8_t>(i)[0] = 9;
    std::fill_n(one_bit.row<std::uint8_t>(i), 8, std::uint8_t{0});
    one_bit.row<std::uint8_t>(i)[i % 8] = static_cast<std::uint8_t>(1 << i / 8 % 8);
  }
  const std::vector<std::string> linf = doubts_of(few_values, Metric::linf, 30);
  expect_doubts(linf, {"metric linf does not separate the rows: "}, "zeros and ones");
  expect_doubts(doubts_of(one_bit, Metric::jaccard, 20), {"metric jaccard does not separate the rows: "}, "sets of one");
}

TEST(DataDoubts, name_a_metric_by_which_none_is_near) {
  const Base noise(Kind::gaussian, n, 2000, DType::f32);
  for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::cosine, Metric::l1}) {
    expect_doubts(doubts_of(noise.rows, metric),
                  {join_text("metric ", name_of(metric), " hardly separates the rows: the nearest one is at 9")},
                  "noise of 2,000 dimensions");
  }
}

TEST(DataDoubts, name_a_row_that_is_in_most_lists) {
  Base base(Kind::gaussian, n, 12, DType::f32);
  for (std::int64_t j = 0; j < 12; ++j) base.rows.set(77, j, j % 2 ? 1000.0 : -1000.0);
  const std::vector<std::string> doubts = doubts_of(base.rows, Metric::inner_product);
  expect_doubts(doubts, {"metric inner_product does not separate the rows: row 77 is a neighbour of "}, "a long row");
}

// Rows that are far from all have no neighbours to speak of; the others are as usual ones.
TEST(DataDoubts, pass_over_rows_that_are_far_from_all) {
  for (const double hole : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    Base base(Kind::gaussian, n, 12, DType::f32);
    for (std::int64_t i = 0; i < n; i += 2) base.rows.set(i, 1, hole);
    GraphParams params;
    params.k = 5;
    params.allow_nonfinite = true;
    expect_doubts(build_graph(base.rows, params).doubts, {}, "half of the rows have holes");
    for (std::int64_t i = 0; i < n; ++i) base.rows.set(i, 1, hole);
    expect_doubts(build_graph(base.rows, params).doubts, {}, "all have");
  }
}

TEST(DataDoubts, are_none_of_few_rows_or_lists_of_all) {
  for (const std::int64_t rows : {2, 3, 31, 32, 33, 65, 300}) {
    for (const std::int64_t k : {std::int64_t{1}, rows / 2, rows - 1}) {
      const Base base(Kind::gaussian, rows, 12, DType::f32);
      if (k >= 1) expect_doubts(doubts_of(base.rows, Metric::l2, k), {}, join_text(rows, " rows, k ", k));
    }
  }
  const Base base(Kind::gaussian, 50, 4, DType::f32);
  GraphParams params;
  const KnnGraph graph = build_graph(base.rows, params);
  expect_error(Fault::invalid_argument, {"a graph of 50 rows is not one of 49 vectors"},
               [&] { data_doubts(graph, base.rows.ref().slice(0, 49)); });
  EXPECT_TRUE(data_doubts(KnnGraph{}, MatrixRef(nullptr, 0, 4, DType::f32)).empty());
}

}  // namespace
}  // namespace gigaknn
