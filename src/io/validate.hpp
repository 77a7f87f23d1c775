// Values that a metric cannot use, found before the work starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

struct ValuePlace {
  std::int64_t row = 0;
  std::int64_t col = 0;
  double value = 0;
};

/// Rows with unusable values, and the first place of each kind in row order.
struct ValueFaults {
  std::int64_t nonfinite_rows = 0;
  std::optional<ValuePlace> first_nonfinite;
  std::int64_t negative_rows = 0;  ///< counted under chi2 and hellinger only; -0 is not negative
  std::optional<ValuePlace> first_negative;
  std::int64_t zero_rows = 0;  ///< counted under cosine only
  std::optional<std::int64_t> first_zero_row;
};

/// Looks at every value of `matrix` (f32, f16, bf16, u8 or i8) that could be wrong under `metric`, with
/// all threads; the result does not depend on them. Throws Error: cancelled, invalid_argument (i32,
/// i64).
ValueFaults find_value_faults(MatrixRef matrix, Metric metric, const RunOptions& run = {});

/// Throws Error: invalid_argument where `matrix` (called `what` in the message) has no columns: its rows are nothing to compare.
void require_columns_of(MatrixRef matrix, std::string_view what);
/// The same, and unsupported where it is in the memory of a GPU.
void require_columns(MatrixRef matrix, std::string_view what);

/// As require_columns. Throws Error: invalid_data, with row, column and value, where `matrix` holds
/// NaN or infinity, unless allowed, or values below zero under a metric that has no meaning for them. Its rows count from `first_row`.
void require_usable_values(MatrixRef matrix, Metric metric, bool allow_nonfinite, std::string_view what,
                           const RunOptions& run = {}, std::int64_t first_row = 0);

/// Throws Error: invalid_data where a row is all zeros: what stands for rows by cosine, codes or transformed rows, stands for none of
/// these.
void require_directions(MatrixRef matrix, std::string_view what, const RunOptions& run = {});

}  // namespace gigaknn
