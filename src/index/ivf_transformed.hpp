// An inverted file of rows that are transformed first (learn/linear_transform.hpp), with full vectors behind it or not.
//
//   base [n, d] --LinearTransform--> f32 [n, d_out] --> IvfFlatIndex or IvfPqIndex, which knows nothing of d
//   queries [q, d] --LinearTransform--> f32 [q, d_out] --its search--> k, or k * refine, nearest transformed rows
//     --Ops::nearest_among, where there are full vectors--> the k nearest by these
//
// Without full vectors distances are those among transformed rows: of fewer dimensions less than those of rows. Every step is exact and its ties go by id: the
// same bits on every device.
#pragma once

#include <memory>
#include <vector>

#include <gigaknn/index.hpp>

#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"
#include "index/row_ids.hpp"

namespace gigaknn {

class IvfTransformedIndex : public Index {
 public:
  /// `owner` keeps what `stored` shows alive. `file`: whose ids these are, for messages.
  IvfTransformedIndex(StoredTransformed stored, std::shared_ptr<const void> owner, std::string file, IndexSetting setting);

  /// Of an index of [n, d] rows.
  struct Shape {
    std::int64_t n, d;
    DType dtype;
    Metric metric;
    std::int64_t lists;
    std::int64_t cols_out;
    std::int64_t code_bytes;  ///< 0: transformed rows
    int code_bits;
    bool refines;
  };
  /// The most that preparing and one search allocate, results not counted.
  static std::size_t bytes_needed(const Shape& shape, const IndexSetting& setting, int threads);

  std::int64_t rows() const override { return inner_->rows(); }
  std::int64_t cols() const override { return stored_.facts.cols; }
  DType dtype() const override { return stored_.facts.dtype; }
  Metric metric() const override { return stored_.facts.metric; }
  std::int64_t lists() const override { return inner_->lists(); }
  std::string_view kind() const override { return ivf_transformed_schema; }
  bool keeps_rows() const override { return refines(); }
  bool refines() const override { return stored_.refines(); }
  std::vector<RowId> held_out() const override;
  std::int64_t next_id() const override { return stored_.facts.next_id; }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override;
  Matrix reconstruct(std::span<const RowId> ids) const override;
  void save(const std::filesystem::path& path, const RunOptions& run) const override;

  void prepare(const RunOptions& run) const;
  Shape shape() const;

 private:
  const RowIds& ids() const { return stored_.lists ? stored_.lists->ids() : ids_; }

  const StoredTransformed stored_;
  const std::shared_ptr<const void> owner_;
  const IndexSetting setting_;
  const Ops& ops_;
  const RowIds ids_;  // of codes
  std::unique_ptr<const Index> inner_;
  std::function<void(const RunOptions&)> prepare_inner_;
};

}  // namespace gigaknn
