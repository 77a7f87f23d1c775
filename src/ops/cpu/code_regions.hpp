// A coarse division of the rows: rows of one region are stored together, so a query that starts there soon
// knows how near its neighbours are. No bound depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gigaknn/progress.hpp>

#include "ops/cpu/float_tiles.hpp"
#include "ops/cpu/row_kernels.hpp"

namespace gigaknn::cpu {

class CodeRegions {
 public:
  /// Centres by a few rounds of k-means (Lloyd) on y [rows, dims], a sample of n rows.
  void fit(const RowKernels& kernels, const FloatKernels& floats, const std::vector<float>& y, std::int64_t dims,
           std::int64_t n, const RunOptions& run);
  /// The nearest centre of each of y [count, dims].
  void find(const float* y, std::int64_t count, std::uint16_t* regions) const;

  int count() const { return count_; }
  std::size_t bytes() const { return 4 * (centres_.size() + terms_.size()); }
  static std::size_t bytes_needed(std::int64_t dims);

 private:
  const FloatKernels* floats_ = nullptr;
  std::int64_t dims_ = 0;
  int count_ = 1;
  std::vector<float> centres_;  // [dims, regions padded to 64]
  std::vector<float> terms_;    // [regions] |centre|^2 / 2
};

}  // namespace gigaknn::cpu
