// Rows in a device's memory, as kernels see them, and the host's side that uploads them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "core/neighbor.hpp"
#include "simt/device.hpp"

namespace gigaknn::gpu {

/// Borrowed by kernels. Rows begin at multiples of 16 bytes; what lies between them is zero.
struct RowsView {
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t pitch = 0;  ///< bytes from a row to the next
  std::int32_t cols = 0;
  DType dtype = DType::f32;
  const double* squared_norms = nullptr;  ///< [rows], canonical sums
  const std::uint8_t* far = nullptr;      ///< [rows] marks, far_row or negative_row
};

/// Marks of a row: farthest from everything (NaN, infinity; zero under cosine); of a kind that chi2 and
/// hellinger are not made for, which no filter may see.
inline constexpr std::uint8_t far_row = 1;
inline constexpr std::uint8_t negative_row = 2;

/// Rows on the device, with norms and marks once `find_facts` has run: a copy, or, of rows that lie there as kernels want them, the rows
/// themselves.
class DeviceRows {
 public:
  DeviceRows() = default;
  /// `rows` must live until the stream is synchronized, those of the device as long as this.
  DeviceRows(MatrixRef rows, simt::Stream* stream);

  RowsView view() const;
  std::size_t bytes() const;
  static std::size_t bytes_of(std::int64_t rows, std::int64_t cols, DType dtype);
  /// The same of these, on the stream's device: without a copy of what is read where it is.
  static std::size_t bytes_of(MatrixRef rows, const simt::Stream* stream);

 private:
  friend void find_facts(DeviceRows& rows, Metric metric, simt::Stream* stream);

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  DType dtype_ = DType::f32;
  const std::byte* borrowed_ = nullptr;  // null: they are copied
  std::int64_t pitch_ = 0;
  simt::DeviceBuffer<std::byte> data_;
  simt::DeviceBuffer<double> squared_norms_;
  simt::DeviceBuffer<std::uint8_t> far_;
};

/// Sums the squares of every row and marks those that are farthest from everything.
void find_facts(DeviceRows& rows, Metric metric, simt::Stream* stream);

}  // namespace gigaknn::gpu
