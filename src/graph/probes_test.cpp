// Bands, and which neighbours of a sample are looked at.
#include "graph/probes.hpp"

#include <gtest/gtest.h>

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
  for (std::size_t i = 0; i < truth.ids.size(); ++i) truth.ids[i] = i < 10 || (i >= 20 && i < 22) ? RowId{static_cast<std::int64_t>(i)} : no_row;
  std::vector<std::int64_t> begins;
  EXPECT_EQ(sampled_neighbors(truth, 5, begins), (std::vector<std::size_t>{1, 3, 5, 7, 9, 20, 21}));
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 5, 5, 7}));
}

}  // namespace
}  // namespace gigaknn
