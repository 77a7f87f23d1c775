// Bands, and which neighbours of a sample are looked at.
#include "graph/probes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/gather.hpp"

namespace gigaknn {
namespace {

TEST(Bands, cover_all_cells_in_order) {
  const std::vector<std::int64_t> begins = {0, 10, 10, 30, 95, 100, 100};
  EXPECT_EQ(bands_of(begins, 40, 1, 1), (std::vector<std::int64_t>{0, 3, 4, 6}));  // the cell of 65 rows is one of its own
  EXPECT_EQ(bands_of(begins, 100, 1, 1), (std::vector<std::int64_t>{0, 6}));
  EXPECT_EQ(bands_of(begins, 1, 1, 1), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Bands, are_narrower_where_rows_look_into_many_cells_or_have_long_lists) {
  std::vector<std::int64_t> begins;
  for (std::int64_t cell = 0; cell <= 100; ++cell) begins.push_back(10 * cell);
  EXPECT_EQ(bands_of(begins, 200, probes_a_band_row, 10).size(), 6u);
  EXPECT_EQ(bands_of(begins, 200, 4 * probes_a_band_row, 10).size(), 21u);
  EXPECT_EQ(bands_of(begins, 200, 10, 4 * probes_a_band_row).size(), 21u);
}

TEST(SampledNeighbors, are_spread_over_the_list_and_leave_out_what_is_none) {
  Neighbors truth(3, 10);
  for (std::size_t i = 0; i < truth.ids.size(); ++i) {
    truth.ids[i] = i < 10 || (i >= 20 && i < 22) ? RowId{static_cast<std::int64_t>(i)} : no_row;
  }
  std::vector<std::int64_t> begins;
  EXPECT_EQ(sampled_neighbors(truth, 5, begins), (std::vector<std::size_t>{1, 3, 5, 7, 9, 20, 21}));
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 5, 5, 7}));
}

// Centroids on a grid of `side` x `side`; a sample of rows that stand on them, whose neighbours stand so many columns to the right.
struct Grid {
  std::int64_t side;
  CoarseQuantizer quantizer;
  std::vector<std::int64_t> begins;

  explicit Grid(std::int64_t side_) : side(side_) {
    quantizer.centroids = Matrix(side * side, 2, DType::u8);
    quantizer.regions = Matrix(1, 2, DType::u8);
    std::fill_n(quantizer.regions.row<std::uint8_t>(0), 2, std::uint8_t{128});
    quantizer.begins = {0, side * side};
    for (std::int64_t cell = 0; cell < side * side; ++cell) {
      quantizer.centroids.row<std::uint8_t>(cell)[0] = static_cast<std::uint8_t>(2 * (cell / side));
      quantizer.centroids.row<std::uint8_t>(cell)[1] = static_cast<std::uint8_t>(2 * (cell % side));
    }
    for (std::int64_t cell = 0; cell <= side * side; ++cell) begins.push_back(rows_a_cell * cell);
  }

  ProbeSample sample(std::int64_t to_the_right) const {
    ProbeSample sample;
    std::vector<std::int64_t> rows, neighbors;
    sample.begins = {0};
    for (std::int64_t line = side / 4; line < 3 * side / 4; ++line) {
      rows.push_back(line * side + side / 4);
      neighbors.push_back(rows.back() + to_the_right);
      sample.cells.push_back(RowId{rows.back()});
      sample.neighbor_cells.push_back(RowId{neighbors.back()});
      sample.begins.push_back(std::ssize(neighbors));
    }
    sample.rows = gather_rows(quantizer.centroids, rows);
    sample.neighbors = gather_rows(quantizer.centroids, neighbors);
    return sample;
  }
  ProbeChooser chooser() const { return {ops_of("cpu"), quantizer, begins, most_band_rows, Metric::l2, 1, run}; }
  std::int64_t cells() const { return side * side; }

  // By a real finder, from either side.
  std::int64_t found(const ProbeSample& sample, const ProbeChoice& choice) const {
    const NearCellFinder finder(ops_of("cpu"), quantizer, Metric::l2, choice.near, choice.width, run);
    const auto looks = [&](MatrixRef matrix, const std::vector<RowId>& own, const std::vector<RowId>& wanted) {
      std::vector<RowId> rows, cells(own.size() * static_cast<std::size_t>(choice.width));
      for (std::size_t i = 0; i < own.size(); ++i) rows.push_back(RowId{static_cast<std::int64_t>(i)});
      finder.nearest(matrix, rows, own.data(), cells.data(), run);
      std::vector<bool> found;
      for (std::size_t i = 0; i < own.size(); ++i) {
        const auto first = cells.begin() + static_cast<std::ptrdiff_t>(i) * choice.width;
        found.push_back(std::find(first, first + choice.width, wanted[i]) != first + choice.width);
      }
      return found;
    };
    const auto there = looks(sample.rows, sample.cells, sample.neighbor_cells);
    const auto back = looks(sample.neighbors, sample.neighbor_cells, sample.cells);
    std::int64_t either = 0;
    for (std::size_t i = 0; i < there.size(); ++i) either += there[i] || back[i];
    return either;
  }

  RunOptions run;
};

TEST(ProbeChooser, looks_as_far_as_neighbours_are) {
  const Grid grid(static_cast<std::int64_t>(std::sqrt(most_cells_compared)) + 4);
  ASSERT_GT(grid.cells(), most_cells_compared);
  std::int64_t width_before = 0;
  for (const std::int64_t far : {0, 1, 2, 4, 6}) {
    if (far * 4 > grid.side) continue;
    const ProbeSample sample = grid.sample(far);
    const ProbeChoice choice = grid.chooser().cheapest(sample, 0.5);
    EXPECT_GE(choice.width, width_before);
    EXPECT_LE(choice.width, choice.near);
    EXPECT_TRUE(choice.enough);
    EXPECT_GE(2 * grid.found(sample, choice), std::ssize(sample.cells)) << far;
    width_before = choice.width;
  }
}

TEST(ProbeChooser, looks_among_more_cells_only_where_these_do_not_do) {
  const Grid grid(static_cast<std::int64_t>(std::sqrt(4 * most_near)) + 8);  // so many that all cost more than any near ones
  const ProbeSample here = grid.sample(0), far = grid.sample(grid.side / 2);
  const ProbeChoice nearby{.near = least_near, .width = least_near / 2, .enough = true};
  EXPECT_EQ(grid.chooser().widened(nearby, here, 0.9).near, least_near);
  EXPECT_EQ(grid.chooser().widened(nearby, here, 0.9).width, nearby.width);
  // Neighbours half a grid away: it widens as often as it may, and no further.
  const ProbeChoice most = grid.chooser().widened(nearby, far, 0.9);
  EXPECT_GT(most.width, nearby.width);
  EXPECT_LE(most.width, 4 * nearby.width);
  EXPECT_LE(most.width, most.near);
  const ProbeChoice all = grid.chooser().cheapest(far, 0.9);
  EXPECT_EQ(all.near, grid.cells());
}

TEST(ProbeChooser, few_cells_are_all_compared) {
  const Grid grid(static_cast<std::int64_t>(std::sqrt(most_cells_compared)));
  const ProbeChoice choice = grid.chooser().cheapest(grid.sample(1), 0.5);
  EXPECT_EQ(choice.near, grid.cells());
  EXPECT_GE(2 * grid.found(grid.sample(1), choice), std::ssize(grid.sample(1).cells));
}

}  // namespace
}  // namespace gigaknn
