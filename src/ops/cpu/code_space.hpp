// Where a filter works: rows become vectors of 8-bit codes, with a proven bound on what that loses.
//
//   row [d] --as the metric sees it, shortened--> y --rounded to `step`--> code, error
//
// The bound (docs/exact-search.md has the proofs): with y' what a code stands for, in a form's own measure,
//   euclidean  |x1 - x2|  >= |y1' - y2'| - error1 - error2             l2, euclidean, cosine, hellinger
//   product    <x1, x2>   <= <y1', y2'> + |y1'| error2 + |y2'| error1 + error1 error2         inner_product
//   manhattan  |x1 - x2|  >= |y1' - y2'| - error1 - error2             l1
// To add a form: a space that encodes for it, a kernel in code_kernels.hpp, its thresholds in code_bounds.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gigaknn/matrix.hpp>

#include "ops/cpu/code_kernels.hpp"
#include "ops/cpu/code_regions.hpp"
#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {

enum class CodeForm { euclidean, product, manhattan };
/// The form that bounds `metric`, where there is one.
bool has_code_form(Metric metric);
CodeForm form_of(Metric metric);
/// False where rows are so wide that `fit_codes` finds none.
bool codes_may_fit(Metric metric, std::int64_t d, const CodeKernels& kernels);

/// The sum of a code's values.
std::int32_t sum_of_code(const RowKernels& kernels, const std::int8_t* code, std::int64_t dims);

/// Rows as codes, in the order they were given.
struct CodedRows {
  std::int64_t stride = 0;            ///< bytes from row to row
  std::vector<std::int8_t> codes;     ///< [rows, stride]; manhattan: the bits of unsigned bytes
  std::vector<std::int32_t> squares;  ///< [rows] sum of code^2; manhattan: 0
  std::vector<std::int32_t> sums;     ///< [rows] sum of code; manhattan: 0
  std::vector<float> errors;          ///< [rows] upper bound of |y - y'| and of all that was lost before
  std::vector<float> norms;           ///< [rows] upper bound of |y'|; manhattan: 0
  std::vector<float> steps;           ///< [rows] y' = step * code
  std::vector<std::uint16_t> regions; ///< [rows] nearest region centre

  void resize(std::int64_t rows, std::int64_t stride_);
  /// Row `to` becomes row `row` of `from`, whose stride is the same.
  void copy_row(const CodedRows& from, std::int64_t row, std::int64_t to);
};

/// What a filter costs per query and row, in cycles, as estimated from a sample.
struct FilterEstimate {
  std::int64_t dims = 0;        ///< of the code; 0: no filter pays
  bool bytes = false;           ///< codes are the rows' own bytes
  double survivors = 1;         ///< fraction of rows that must be looked at in full
  double cycles = 0;
};

/// What fitting a space needs to know of the rows.
struct CodeSource {
  MatrixRef base;
  const RowFacts& facts;
  const PairDistance& pair;
  const CodeKernels& kernels;  ///< decide the width of a code
  const FloatKernels& floats;
  std::int64_t k;              ///< length of the lists that will be asked for
  bool regions = true;         ///< rows will stand by region: find centres
  bool seven_bits = false;     ///< PrepareHints
  double near_share = 1;       ///< of all rows, those nearest to a query: it will be compared with these alone
};

class CodeSpace {
 public:
  virtual ~CodeSpace() = default;

  const FilterEstimate& estimate() const { return estimate_; }
  /// Bytes of a code: dims rounded up to whole steps of the kernel.
  std::int64_t stride() const { return (estimate_.dims + step_dims_ - 1) / step_dims_ * step_dims_; }
  double step() const { return step_; }
  int regions() const { return regions_.count(); }
  /// Under inner_product, x = code + byte_zero where codes are bytes.
  virtual int byte_zero() const { return 0; }
  virtual std::size_t bytes() const = 0;

  /// Codes of rows [begin, end) into the rows of `out` from `out_begin`. Queries of inner_product may have
  /// a scale of their own, so each gets its own step.
  virtual void encode(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, bool queries,
                      CodedRows& out, std::int64_t out_begin) const = 0;

 protected:
  explicit CodeSpace(const CodeKernels& kernels) : step_dims_(kernels.step_dims) {}

  FilterEstimate estimate_;
  double step_ = 1;
  CodeRegions regions_;

 private:
  std::int64_t step_dims_;
};

/// A space fitted to a sample of the rows; null where no filter pays.
std::unique_ptr<CodeSpace> fit_codes(const CodeSource& source, const RunOptions& run);
/// The most that fitting allocates, and the most bytes of a code.
std::size_t fit_bytes_needed(Metric metric, std::int64_t n, std::int64_t d, int threads);
std::int64_t most_code_bytes(Metric metric, std::int64_t d);

}  // namespace gigaknn::cpu
