// Where a filter works: rows become short vectors of 8-bit codes, with a proven bound on what that loses.
//
//   row [d] --widen, normalise or take roots--> x [d] --minus mean, project--> y [dims] --round / step--> code
//
// The bound (docs/exact-search.md has the proof): with y' = step * code and `error` >= |y - y'| + the rounding of
// everything before, |x1 - x2| >= |y'1 - y'2| - error1 - error2. The projection keeps `dims - 1` directions of
// largest variance, rotated so that all spread equally, and one more coordinate: the norm of the rest.
#pragma once

#include <cstdint>
#include <vector>

#include <gigaknn/matrix.hpp>

#include "ops/cpu/code_kernels.hpp"
#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {

/// Rows as codes, in the order they were given.
struct CodedRows {
  std::int64_t stride = 0;            ///< bytes from row to row: steps * 4
  std::vector<std::int8_t> codes;     ///< [rows, stride]
  std::vector<std::int32_t> squares;  ///< [rows] sum of code^2
  std::vector<std::int32_t> sums;     ///< [rows] sum of code
  std::vector<float> errors;          ///< [rows] upper bound of |x - x'| as above
  std::vector<float> norms;           ///< [rows] upper bound of |x'|
  std::vector<float> steps;           ///< [rows] x' = step * code
  std::vector<std::uint16_t> regions; ///< [rows] nearest region centre

  void resize(std::int64_t rows, std::int64_t stride_);
};

/// What a filter costs per query and row, in cycles, as estimated from a sample.
struct FilterEstimate {
  std::int64_t dims = 0;        ///< of the code; 0: no filter pays
  bool bytes = false;           ///< codes are the rows' own bytes
  double survivors = 1;         ///< fraction of rows that must be looked at in full
  double cycles = 0;
};

class CodeSpace {
 public:
  /// Fits to a sample of `base`, for lists of k; `kernels` decide the width of a code.
  CodeSpace(MatrixRef base, const RowFacts& facts, const PairDistance& pair, const CodeKernels& kernels,
            const FloatKernels& floats, std::int64_t k, const Run& run);

  /// The most that fitting to n rows allocates.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, int threads);

  const FilterEstimate& estimate() const { return estimate_; }
  std::int64_t stride() const { return (dims_ + 3) / 4 * 4; }
  double step() const { return step_; }
  int regions() const { return region_count_; }
  /// Under inner_product, x = code + byte_zero where codes are bytes.
  int byte_zero() const { return byte_zero_; }
  std::size_t bytes() const;

  /// Codes of rows [begin, end) into the rows of `out` from `out_begin`. Queries of inner_product may have
  /// a scale of their own, so each gets its own step.
  void encode(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, bool queries,
              CodedRows& out, std::int64_t out_begin) const;

 private:
  // Some rows as x - mean, dense.
  struct Sample {
    std::int64_t rows = 0;
    std::vector<float> x;  // [rows, d]
    const float* row(std::int64_t i, std::int64_t d) const { return x.data() + i * d; }
  };
  Sample draw_sample(MatrixRef base, const RowFacts& facts, const Run& run);
  void fit_directions(const Sample& sample, const Run& run);
  void choose_dims(const Sample& sample, std::int64_t n, std::int64_t k, const Run& run);
  void build_projection();
  void fit_step(const Sample& sample);
  void fit_regions(const Sample& sample, std::int64_t n, const Run& run);
  void load_row(MatrixRef rows, const RowFacts& facts, std::int64_t i, float* x, float* scratch) const;
  // y [count, dims] and, for each row, a bound of what was lost so far.
  void project(const float* x, std::int64_t count, float* y, double* errors) const;
  // Rounds y / step to codes and adds what that loses to `error`.
  void quantize(const float* y, double step, double& error, std::int8_t* codes, std::int32_t& squares,
                std::int32_t& sum) const;
  void find_regions(const float* y, std::int64_t count, std::uint16_t* regions) const;

  PairDistance pair_;
  const CodeKernels* kernels_;
  const FloatKernels* floats_;
  std::int64_t d_;
  std::int64_t dims_ = 0;
  double step_ = 1;
  int byte_zero_ = 0;
  bool product_ = false;
  FilterEstimate estimate_;
  std::vector<float> mean_;        // [d]
  std::vector<float> directions_;  // [found, d] principal directions, largest variance first
  std::int64_t found_ = 0;
  std::vector<float> projection_;  // [d, kept padded to 64]; empty: y = x
  std::int64_t kept_ = 0;          // dims_ == kept_ + 1 where the norm of the rest is a coordinate
  double orthogonality_ = 0;       // bound of |P P^T - I|
  double rest_centre_ = 0;
  int region_count_ = 1;
  std::vector<float> centres_;       // [dims, regions padded to 64]
  std::vector<float> centre_terms_;  // [regions] |centre|^2 / 2
};

}  // namespace gigaknn::cpu
