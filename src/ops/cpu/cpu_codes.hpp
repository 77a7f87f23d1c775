// Product codes in cells prepared for the CPU, and their search: the distances to decoded rows, exactly, behind a filter on sums of 8-bit
// table entries.
//
// By l2, x = centroid + codewords (equation 11 of Johnson, Douze, Jégou 2017, by what depends on whom, from the rows' middle):
//
//   |q - x|^2 = |q|^2 - 2 <q, centroid> - 2 sum over parts <(q - middle) part, codeword> + |x|^2 - 2 <middle, x - centroid>
//
//   a query       table [m][words] of the products in that sum, in 256 steps from below; of planes, times what each counts
//   a row         the last two terms, kept beside its code; of a scaled code, whose codewords count factor times, the factor too, and
//                 |x|^2 + shift in place of |x|^2
//   both          product_kernels: a lower bound of the distance; of what passes the distance in float32, whose error is known; and what
//                 that leaves possible in the end is decoded, and takes the canonical distance
//
// So a table is a query's, whatever the cells it looks into, where tables of distances to residuals would be its and a cell's. What a step
// rounds away goes by the length of what is multiplied: hence the middle, which queries lie around as rows do. Codes of one
// dimension a part need no table (level_codes.hpp), and what is kept beside them is of codewords alone:
//
//   |q - x|^2 = |r|^2 - 2 <r, w> + |w|^2,  <q, x> = <q, centroid> + <r, w> + <centroid, w>        (r = q - centroid, w the codewords)
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/level_codes.hpp"
#include "ops/cpu/pair_distance.hpp"
#include "ops/cpu/product_kernels.hpp"
#include "ops/cpu/top_k.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {

class CpuCodes : public PreparedCodes {
 public:
  /// `nibbles`: for codes of 4 bits a part, also of those of bytes that are looked up by halves. `levels`: for codes of one dimension a
  /// part; null: there are none.
  CpuCodes(const ProductCodes& codes, const PairDistance& pair, const ProductKernels& products, const CodeScan& nibbles,
           const CodeKernels* levels, ReadLevels read, const FloatKernels& floats, const RunOptions& run);

  /// `quick_bytes`: as ProductKernels has it.
  static std::size_t bytes_needed(std::int64_t n, const CodeShape& shape, bool quick_bytes, const CodeKernels* levels, std::int64_t cells,
                                  const PrepareHints& hints, int threads);

  std::int64_t rows() const override { return begins_.back(); }
  std::int64_t cols() const override { return codes_.d; }
  std::int64_t cells() const override { return codes_.cells.count(); }
  Metric metric() const override { return pair_.metric(); }
  std::size_t bytes() const override;
  std::string description() const override;

  void nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, RowMask allowed,
               ListOrder order, const RunOptions& run) const;

 private:
  struct Block;
  struct CodedQuery;
  struct Candidate;
  /// Of all rows that are not far.
  struct Largest {
    double row = 0;       // |x|, decoded
    double centroid = 0;  // its length
    double factor = 0;
    double shift = 0;     // where distances have one, without its sign

    void take(const Largest& of) {
      row = std::max(row, of.row), centroid = std::max(centroid, of.centroid);
      factor = std::max(factor, of.factor), shift = std::max(shift, of.shift);
    }
  };
  LocalRow name_of(std::int64_t place) const {
    return names_.empty() ? static_cast<LocalRow>(place) : names_[static_cast<std::size_t>(place)];
  }
  /// From the codewords of one part to those of the next, in floats; 0: it shares them.
  std::int64_t next_part(std::int64_t width) const { return codes_.scaled ? 0 : scanned_.part_dims * width; }
  void find_middle();
  void read_as_nibbles();
  /// Where the term of row r of a block is.
  std::size_t term_place(std::int64_t block, std::int64_t r) const;
  std::int64_t block_queries() const;
  double margin_of_tables(double length, double from_middle) const;
  double margin_of_levels(const CodedQuery& query, const LevelCodes::Asked& asked, std::int64_t cell) const;
  void take_queries(MatrixRef queries, Block& block) const;
  void make_tables(MatrixRef queries, Block& block) const;
  void prefetch(std::int64_t cell) const;
  void look_into(std::int64_t cell, std::int64_t i, Block& block, TopK& lists) const;
  void look_into_levels(std::int64_t cell, std::span<const std::int64_t> queries, Block& block, TopK& lists) const;
  void take_estimated(std::int64_t cell, std::int64_t first_row, std::int64_t i, Block& block, TopK& lists) const;
  static float cut_of(Block& block, std::int64_t wanted);
  template <class Wanted>
  static void add_masked(Block& block, std::int64_t first_row, const Wanted& wanted);
  template <class Wanted>
  void add_up_to(Block& block, float most, std::int64_t first_row, const Wanted& wanted) const;
  void screen(std::int64_t cell, std::int64_t i, Block& block, TopK& lists) const;
  PackedNeighbor neighbor_of(const Candidate& candidate, const CodedQuery& query, float* decoded) const;
  void keep_nearest(std::int64_t i, std::int64_t k, Block& block) const;
  void finish(std::int64_t i, ListOrder order, Block& block, TopK& lists, std::vector<PackedNeighbor>& found) const;
  double distance_limit(const CodedQuery& query, PackedNeighbor bound) const;
  float limit_of(const CodedQuery& query, PackedNeighbor bound) const;

  ProductCodes codes_;
  CodeShape scanned_;               // as what they are looked up
  MatrixRef scanned_words_;
  std::vector<std::int64_t> begins_;
  std::vector<LocalRow> names_;
  std::vector<std::int64_t> block_begins_;
  PairDistance pair_;
  const ProductKernels* products_;
  CodeScan scan_;
  const FloatKernels* floats_;
  float scale_;                     // of products in a distance: -2, or -1
  Largest largest_;
  double longest_words_ = 0;        // the longest codewords of all parts together: times its factor no row has more left of its centroid
  std::vector<float> middle_;       // [d]; none beside levels
  std::int64_t width_;              // words, and the zeros behind them
  Matrix nibble_words_;             // of codes of bytes that are read as two parts each
  std::vector<float> transposed_;   // [m][part_dims][width] codewords, or [part_dims][width] where parts share them
  std::unique_ptr<LevelCodes> levels_;  // of codes of one dimension a part
  std::vector<LevelCodes::Reach> reaches_;  // [cells]
  std::vector<float> terms_;        // [blocks][32] in lane order; beside levels by row
  std::vector<float> factors_;      // the same, of scaled codes
  std::vector<LocalRow> far_;       // rows whose decoding overflows, ascending
};

}  // namespace gigaknn::cpu
