// Rows of a base in the form that lists hold, made when they are asked for: the base may be larger than memory, and so may be what it
// becomes.
//
//   base [n, d] --some thousand rows, or a sample--> RowForm::apply --> [m, width] --> lists, codewords, codes
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <gigaknn/kmeans.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "core/gather.hpp"
#include "learn/row_form.hpp"

namespace gigaknn {

class FormedRows {
 public:
  /// `form`: null: rows as they stand. All is borrowed.
  FormedRows(MatrixRef base, const RowForm* form, const Ops& ops) : base_(base), form_(form), ops_(&ops) {}

  std::int64_t rows() const { return base_.rows; }
  DType dtype() const { return form_ ? form_->dtype : base_.dtype; }
  std::int64_t width() const { return form_ ? form_->width(base_.cols) : base_.cols; }
  /// As many as a turn has, at most.
  std::int64_t turn_rows() const;

  /// Some of them, in their order.
  template <class Number>
  Matrix gather(std::span<const Number> rows, const RunOptions& run) const {
    if (!form_) return gather_rows(base_, rows, run);
    Matrix formed(std::ssize(rows), width(), form_->dtype);
    for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(turn_rows())) {
      const Matrix some =
          gather_rows(base_, rows.subspan(begin, std::min(rows.size() - begin, static_cast<std::size_t>(turn_rows()))), run);
      copy_into(formed, static_cast<std::int64_t>(begin), some, run);
    }
    return formed;
  }
  /// All of them, from the first on, handed to `take` with the number of the first in hand. Reports them as `stage`, and nothing that
  /// `take` does.
  void in_turns(std::string_view stage, const std::function<void(MatrixRef rows, std::int64_t begin)>& take, const RunOptions& run) const;

  /// As fit_kmeans of all of them: what it draws is formed alone.
  KMeans fit_kmeans(KMeansParams params, const RunOptions& run) const;

 private:
  void copy_into(Matrix& formed, std::int64_t begin, MatrixRef rows, const RunOptions& run) const;

  MatrixRef base_;
  const RowForm* form_;
  const Ops* ops_;
};

/// The memory that FormedRows of n rows take, of `dtype` and in `form`, or as they stand (null).
struct FormedRowsShape {
  std::int64_t n, d;
  DType dtype;
  const FormShape* form;

  MatrixRef formed() const { return {nullptr, n, form ? form->width : d, form ? form->dtype : dtype}; }
  /// Of a turn of `in_turns`, at most.
  std::int64_t turn_rows() const;
  std::size_t turn_bytes() const;
  /// Of `count` rows that are gathered.
  std::size_t gathering_bytes(std::int64_t count) const;
  std::size_t kmeans_bytes(const KMeansParams& params, const RunOptions& run) const;
};

}  // namespace gigaknn
