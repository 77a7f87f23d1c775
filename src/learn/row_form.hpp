// What the lists of an index hold of a row, where that is not the row itself, and how queries are compared with it.
//
//   row [d] --cosine: divided by its length--> --LinearTransform--> f32 [width] --rounded to f16 or bf16, or to i8 by one step, or as it
//   is-->
//
// With one step for all dimensions l2 among the bytes is, but for step^2, nearly l2 among the rows. Rows of length 1 are compared by l2 as
// well: half of |q - x|^2 is 1 - <q, x>, which does not change when both are moved, as PCA moves them. Everything is float64, or canonical
// products, in one order: the same on every device.
//
// Neighbours are in the order of the distances that lists give; people see these times a factor, rounded to float32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "learn/linear_transform.hpp"

namespace gigaknn {

/// Queries as lists compare them.
struct FormedQueries {
  Matrix rows;                 ///< [q, width]
  std::vector<double> factor;  ///< [q] see RowForm::shown; NaN: a query of zeros by cosine, which has no neighbours. Empty: distances are as lists give them
};

/// What the memory that a form takes depends on.
struct FormShape {
  std::int64_t d = 0;
  std::int64_t width = 0;
  DType dtype = DType::f32;
  bool turns = false;
  bool unit = false;

  bool quantizes() const { return dtype != DType::f32; }
  /// Of n rows, and what the form itself holds.
  std::size_t bytes(std::int64_t n) const;
  /// The most that making the form of n rows allocates beside the result.
  std::size_t applying_bytes(std::int64_t n) const;
};

struct RowForm {
  bool unit = false;         ///< rows are divided by their length first: an index by cosine
  LinearTransform linear = {};
  DType dtype = DType::f32;  ///< f32, f16, bf16 or i8
  double step = 1;           ///< of i8, above 0

  std::int64_t width(std::int64_t d) const { return linear.turns() ? linear.cols_out() : d; }
  FormShape shape(std::int64_t d) const { return {d, width(d), dtype, linear.turns(), unit}; }
  bool quantizes() const { return dtype != DType::f32; }
  /// The metric among what lists hold, of an index of `metric`.
  static Metric compared_by(Metric metric, DType dtype);

  /// Rows [n, d] of any type that are finite and, if `unit`, not zeros, as [n, width]. What `dtype` does not hold is cut.
  Matrix apply(const Ops& ops, MatrixRef rows, const RunOptions& run) const;
  /// The same of queries; by inner_product those of bytes have a step each, so that long ones are not cut.
  FormedQueries apply_to_queries(const Ops& ops, MatrixRef queries, Metric metric, const RunOptions& run) const;
  /// Rows [n, d] that have nearly the form `formed` [n, width], f32, of what `dtype` holds; of length 1 where rows are. `squares`: of
  /// linear.squared_lengths().
  Matrix undo(MatrixRef formed, std::span<const double> squares) const;
  /// The distance of an index of `metric`, of one that lists give: it ascends with it.
  static float shown(float found, double factor, Metric metric, DType dtype);

  bool operator==(const RowForm& other) const;
};

/// Rows in f32 of length 1, but for those of zeros.
Matrix unit_rows(MatrixRef rows, const RunOptions& run);

/// A step by which few numbers of a sample [n, width], f32, are cut, n >= 1; `cuts`: false: none, where the largest are those that matter,
/// as in products.
double fit_step(const Matrix& sample, bool cuts = true);
/// Throws Error: unsupported where f16 cuts the numbers of a sample [n, width], f32, or makes nearly zeros of all.
void require_halves(const Matrix& sample);
std::size_t fit_step_bytes(std::int64_t n, std::int64_t width);

}  // namespace gigaknn
