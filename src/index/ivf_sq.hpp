// An inverted file of quantized rows of fewer dimensions, with full vectors behind it.
//
//   base [n, d] --fit_pca_bytes--> i8 [n, dims] --k-means--> centroids --> ListRows --Ops::prepare_cells, at the first search--> cells
//   queries [q, d] --the same bytes--> ListCentroids::probe --Ops::nearest_in_cells--> k * refine nearest by bytes
//     --Ops::nearest_among--> the k nearest of these by full vectors
//
// Both steps are exact and their ties go by id: the same bits on every device.
#pragma once

#include "index/ivf_index.hpp"

namespace gigaknn {

class IvfSqIndex : public IvfIndex {
 public:
  IvfSqIndex(StoredIvfSq stored, IndexSetting setting);

  /// The most that preparing and one search allocate, results not counted.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t dims,
                                  const IndexSetting& setting, int threads);

  std::string_view kind() const override { return ivf_sq_schema; }
  std::size_t searching_bytes_needed(int threads) const override {
    return bytes_needed(rows(), cols(), dtype(), metric(), lists(), dims(), setting_, threads);
  }
  std::size_t part_bytes_needed(std::int64_t n, const RunOptions& run) const override;
  std::size_t least_writing_bytes(std::int64_t n) const override;

 private:
  std::int64_t dims() const { return pca_.dims(); }
  std::optional<Matrix> as_listed(MatrixRef rows, const RunOptions& run) const override { return pca_.encode(ops_, rows, run); }
  std::string lists_description() const override;
  void require_refine(std::int64_t refine) const override;
  void write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) const override;
  const char* other_fit_than(const IvfIndex& other) const override;

  const PcaBytes pca_;
};

}  // namespace gigaknn
