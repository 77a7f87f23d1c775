// Codes for l1, whose distances no projection keeps: dimensions are dropped or split instead.
//
//   element x of dim j --clamp to [low, low + 255 * columns * step]--> level = round((x - low) / step)
//   column c of dim j  = clamp(level - 255 c, 0, 255)
//
// Clamping never lengthens a difference, dropping a dimension (columns = 0) only shortens the sum, and the
// differences of a dimension's columns add up to the difference of its levels; so |x1 - x2| is at least
// step * sum |code1 - code2| less what rounding lost. A dimension of wide range gets several columns and one that
// tells little none, so that all share one step.
#pragma once

#include "ops/cpu/code_space.hpp"
#include "ops/cpu/row_sample.hpp"

namespace gigaknn::cpu {

class ManhattanCodes : public CodeSpace {
 public:
  ManhattanCodes(const CodeSource& source, const RunOptions& run);

  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, int threads);
  static std::int64_t most_columns(std::int64_t d) { return 2 * d + 16; }

  std::size_t bytes() const override;
  void encode(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, bool queries,
              CodedRows& out, std::int64_t out_begin) const override;

 private:
  struct Split {
    std::int64_t dim;
    std::int64_t columns;
    double low;
  };
  struct Layout {
    std::vector<Split> splits;
    double step = 1;
    double extent = 0;  // sum over the splits of the largest |element| that a code stands for
    std::int64_t columns = 0;
  };
  struct Range {
    double low, high;
  };
  // The finest step with which the ranges fit into so many columns.
  static Layout layout_of(const std::vector<Range>& ranges, std::int64_t columns);
  // Drops the dimensions that lose more by rounding than they tell.
  static void drop_useless(const RowSample& sample, Layout& layout);
  // The fraction of the sample's rows that its first rows, as queries, could not rule out within `radii`.
  static double survivors(const RowSample& sample, const Layout& layout, const std::vector<double>& radii,
                          const RunOptions& run);
  void choose_layout(const RowSample& sample, std::int64_t n, std::int64_t k, const RunOptions& run);
  // Writes the codes of x and returns a bound of what they lose.
  static double encode_row(const Layout& layout, const float* x, std::uint8_t* codes);

  PairDistance pair_;
  std::int64_t d_;
  std::int64_t most_dims_;
  double per_cycle_;
  double pair_cycles_;
  Layout layout_;
};

}  // namespace gigaknn::cpu
