// Codes of one dimension a part as levels, bytes that kernels multiply (code_kernels.hpp), where other product codes are looked up in
// tables: a list is turned into levels once for many queries that look into it, and of a query what the list's centroid leaves is rounded
// to bytes.
//
//   codeword of dimension j   w_j = step_j (level_j + what rounding leaves)
//   a query in a list         r_j = q_j - centroid_j;   step_j r_j = unit (asked_j + what rounding leaves)
//   <r, w>                    unit <asked, level>, and at most  |step r - unit asked| |level| + |r| |w - step level|  from it (Cauchy,
//   Schwarz)
//
// A bound by sums of table entries rounded down lies as far off as there are dimensions, this one as their root.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu/code_kernels.hpp"
#include "ops/cpu/level_reader.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn::cpu {

class LevelCodes {
 public:
  /// Whether codes of this shape are taken so; `kernels`: null: none.
  static bool suits(const CodeShape& shape, const CodeKernels* kernels);
  static std::size_t bytes_needed(const CodeShape& shape);
  /// The most that `levels` and what a block of queries asks of a list take, of a thread.
  static std::size_t visit_bytes_needed(const CodeShape& shape);

  /// Rows of a list that are levels at a time; a multiple of code_block_rows.
  static std::int64_t chunk_rows(const CodeShape& shape);
  /// Queries that ask at a time.
#ifdef GIGAKNN_TINY_TILES
  static constexpr std::int64_t most_queries = 3;
#else
  static constexpr std::int64_t most_queries = 48;
#endif

  LevelCodes(const ProductCodes& codes, const CodeKernels& kernels, ReadLevels read);

  /// Of a row |w|^2, <centroid, w>, |level|^2 and |w - step level|^2.
  struct Row {
    double square = 0, with_centroid = 0, squared_levels = 0, squared_loss = 0;
  };
  Row row(const ProductCodes& codes, std::int64_t cell, std::int64_t block, std::int64_t row) const;

  /// What a query asks of a list.
  struct Asked {
    double square = 0;          ///< |r|^2
    double slack = 0;           ///< that <r, w> may be above or below what levels say; not finite: they say nothing
    float unit = 0;
    std::int32_t zeros = 0;     ///< in the sums of kernels, of what levels are stored with
  };
  /// What the rows of a list are like.
  struct Reach {
    double words = 0, levels = 0, loss = 0;  ///< the largest |w|, |level| and |w - step level|
    void add(const Row& row);
  };
  /// `to` [stride]: the bytes.
  Asked ask(const float* query, const float* centroid, const Reach& reach, std::int8_t* to) const;

  /// Levels of `blocks` blocks of codes, of a chunk at most, in the order of kernels: [groups][steps][group_rows][step_dims].
  void read_levels(const std::uint8_t* codes, std::int64_t blocks, std::int64_t block_bytes, std::vector<std::uint8_t>& levels) const;
  /// sums [groups][queries][group_rows] of so many rows with `asked` [queries][stride].
  void multiply(std::span<const std::uint8_t> levels, std::int64_t rows, const std::int8_t* asked, std::int64_t queries,
                std::vector<std::int32_t>& sums) const;
  /// out[i] = terms[i] + factor * (the sum of row i with query q - asked.zeros); out, terms [rows].
  void estimate(std::span<const std::int32_t> sums, std::int64_t queries, std::int64_t q, const Asked& asked, float scale,
                std::span<const float> terms, float* out) const;

  /// <r, w> of a row in float32; `codes`: its first byte.
  float product(const float* query, const float* centroid, const std::uint8_t* codes) const;
  std::int64_t stride() const { return steps_ * kernels_->step_dims; }
  const char* name() const { return kernels_->name; }

 private:
  template <int bits>
  float product_of(const float* query, const float* centroid, const std::uint8_t* codes) const;
  std::int64_t groups_of(std::int64_t rows) const { return (rows + kernels_->group_rows - 1) / kernels_->group_rows; }

  CodeShape shape_;
  const float* codewords_;
  const CodeKernels* kernels_;
  ReadLevels read_;
  std::int64_t steps_;                       // of kernels
  std::vector<float> step_;                  // [m]
  std::vector<std::uint8_t> stored_levels_;  // [m][words], as kernels store them
  std::vector<std::int32_t> no_terms_;       // [rows of a chunk]
};

}  // namespace gigaknn::cpu
